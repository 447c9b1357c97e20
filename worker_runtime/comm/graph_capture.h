// What StepGraph and the reducer ask of a communicator whose operations can be in a CUDA graph.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_GRAPH_CAPTURE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_GRAPH_CAPTURE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"

namespace ddp::internal {

// Operations captured on this rank, ready to be launched. Used by the communicator's caller, and
// destroyed before the communicator.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;

  // Launches all of it on the stream that was captured; the host does not wait for it. An operation
  // of the group like any other: it has the timeout, and its failure is the group's.
  virtual absl::Status Replay() = 0;

  // How many operations of the group it has, and a hash over what they are, without addresses and
  // without what is a rank's own in a send-receive: equal on all ranks, or a replay would hang.
  virtual uint64_t operation_count() const = 0;
  virtual uint64_t fingerprint() const = 0;
};

// One capture at a time, by the thread that calls the communicator: BeginCapture, operations,
// EndCapture, and Discard unless the graph is good on every rank. What goes wrong between the first
// two costs the capture and not the group.
class GraphCapture {
 public:
  virtual ~GraphCapture() = default;

  // From now on what is done on `stream` is recorded and not executed, operations included. The
  // thread may then neither wait for the device nor ask it. Errors: the driver's;
  // FailedPrecondition while something captures already.
  virtual absl::Status BeginCapture(Stream stream) = 0;
  // REQUIRES: BeginCapture succeeded. Ends the recording in any case. Errors: the first of an
  // operation in it, which a refused call is not; FailedPrecondition when the driver has given the
  // capture up.
  virtual absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() = 0;
  // Takes the numbers of the operations since BeginCapture back, so that the ranks still agree on
  // the next. REQUIRES: BeginCapture succeeded, no operation was called since EndCapture, the graph
  // is gone.
  virtual void Discard() = 0;

  virtual bool is_capturing() const = 0;

  // By owner: what BeginCapture() calls when it succeeds, and Discard() in the end, since a pass of
  // gradients in the capture never was.
  std::map<const void*, std::function<void()>> on_begin, on_discard;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_GRAPH_CAPTURE_H_
