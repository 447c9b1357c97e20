#include "tools/gpu_check_program/captured_step.h"

#include <memory>

#include "ddp/step_graph.h"
#include "tools/gpu_check_program/rank.h"

namespace ddprun::gpu_check {

std::function<void()> CaptureStep(ddp::Communicator& communicator, ddp::Stream stream,
                                  const std::function<absl::Status()>& step) {
  auto created = ddp::StepGraph::Create(communicator, stream);
  MustBeOk("step graph", created.status());
  std::shared_ptr<ddp::StepGraph> graph = *std::move(created);
  for (int i = 0; i < ddp::StepGraph::kUncapturedSteps; ++i) MustBeOk("step", graph->Run(step));
  MustBeOk("capture", graph->Capture(step));
  return [graph] { MustBeOk("replay", graph->Replay()); };
}

}  // namespace ddprun::gpu_check
