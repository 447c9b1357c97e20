// A whole training step as one CUDA graph.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_STEP_GRAPH_H_
#define DDPRUN_WORKER_RUNTIME_DDP_STEP_GRAPH_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"

namespace ddp {

namespace internal {
class CapturedGraph;
}

// Records once what a step does on its stream: zeroing, kernels, the group's operations, the
// optimizer. It replays the step with one launch instead of hundreds, on the same memory. Copy new
// inputs to where the captured step reads them.
//
//   auto graph = StepGraph::Create(group->communicator(), stream);
//   auto step = [&] {                                    // everything on `stream`
//     status = ddp.ZeroGrad(stream); forward; backward with ddp.GradientReady(id, stream);
//     status = ddp.Finish(stream); optimizer;
//     return status;
//   };
//   for (int i = 0; i < StepGraph::kUncapturedSteps; ++i) { next inputs; (*graph)->Run(step); }
//   bool is_captured = (*graph)->Capture(step).ok();     // the same on all ranks
//   each further step: next inputs; is_captured ? (*graph)->Replay() : (*graph)->Run(step);
//
// One thread uses it: the one that calls the communicator, which it borrows. Destroy it before the
// communicator and before the memory that the step uses.
class StepGraph {
 public:
  // Works on the stream of the graph, or on streams that begin and end there by events. It may
  // throw: the exception is the result of the call that ran it.
  using Step = std::function<absl::Status()>;

  // How many steps come before the capture. NCCL connects and libraries allocate at their first
  // use, and neither can be captured.
  static constexpr int kUncapturedSteps = 3;

  // Makes a graph for `stream`, which must outlive it. Errors: Unimplemented for a communicator of
  // host memory, which has no graphs. InvalidArgument for the legacy default stream (null), which
  // cannot be captured.
  static absl::StatusOr<std::unique_ptr<StepGraph>> Create(Communicator& communicator,
                                                           Stream stream);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Runs `step`, uncaptured, and returns its result.
  absl::Status Run(const Step& step);

  // Captures `step`. Collective: all ranks capture, or none does. In the second case all get an
  // error with the same reason and the rank that had it. It calls `step` once while the stream
  // captures: the host's part of the step runs, the device's does not. The step must not wait for
  // the device: Work::Wait() of an operation in it is an error. Errors:
  // - FailedPrecondition before kUncapturedSteps successful runs, or after a capture that
  //   succeeded.
  // - FailedPrecondition if a step did what cannot be captured, or if the ranks captured different
  //   operations.
  // - The step's own error.
  // - Inside another captured step: an error on this rank alone.
  //
  // After an error the group and DistributedDataParallel continue as if the call had not been made,
  // unless NCCL itself broke. If a rank does not call it at all, the host communicator's timeout
  // ends the group and names that rank.
  absl::Status Capture(const Step& step);

  // Launches the captured step on the stream. Collective. The host does not wait for it, but waits
  // for an earlier replay if four are under way. To the group it is one operation that stands for
  // all operations in it. It has the timeout, and ends like any other if a rank does not come or
  // the device hangs in it. If the group fails, its abort waits for the replays that were launched.
  // If these do not end within 2 s, the process ends. Errors: FailedPrecondition without a capture,
  // and the communicator's.
  absl::Status Replay();

  bool is_captured() const { return graph_ != nullptr; }

 private:
  StepGraph(Communicator& communicator, Stream stream);
  absl::Status CheckMayCapture() const;
  absl::Status Agree(const absl::Status& mine, const internal::CapturedGraph* graph);

  Communicator& communicator_;
  const Stream stream_;
  int uncaptured_steps_ = 0;
  std::unique_ptr<internal::CapturedGraph> graph_;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_STEP_GRAPH_H_
