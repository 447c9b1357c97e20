// What a step may do in a capture, and what around it, on the double.
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::ReduceOp;
using ddp::StepGraph;

absl::Status Nothing() { return absl::OkStatus(); }

// Only rank 0's step does it: the refusal is its own, and the others do not wait for it.
TEST_CASE("step graph: a capture inside a captured step is refused, and costs the outer nothing") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training;
    const auto inner = StepGraph::Create(training.communicator(), NewStream());
    EXPECT(inner.ok());
    for (int i = 0; i < StepGraph::kUncapturedSteps; ++i) EXPECT((*inner)->Run(Nothing).ok());
    EXPECT(training.WarmUp());
    absl::Status refused;
    const absl::Status status = training.graph().Capture([&] {
      if (rank == 0) refused = (*inner)->Capture(Nothing);
      return training.Step();
    });
    EXPECT(status.ok());
    if (rank == 0) {
      EXPECT(absl::IsFailedPrecondition(refused));
      EXPECT(Has(refused.ToString(), "capture a step: another step of this group is being"));
    }
    EXPECT(training.Replay(4));
    EXPECT(training.Train(5));
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("step graph: a stream that captures already is refused on all ranks, with a reason") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    const auto stream = static_cast<ddp::internal::CudaStream>(training.stream());
    if (rank == 1) {
      Driver().cuStreamBeginCapture(stream, ddp::internal::kCudaCaptureModeThreadLocal);
    }
    EXPECT(Has(training.graph().Capture(training.step()).ToString(),
               "rank 1: the stream is being captured already"));
    ddp::internal::CudaGraph recorded = nullptr;
    if (rank == 1) Driver().cuStreamEndCapture(stream, &recorded);
    EXPECT(training.Train(4));
    EXPECT(training.graph().Capture(training.step()).ok());
    EXPECT(training.Replay(5));
    return 0;
  });
  CHECK(codes == "0 0");
}

// Whom a rank sends to, how much and of which type is its own affair.
TEST_CASE("step graph: a pipeline's send-receive is captured, other on each rank") {
  const auto codes = RunOnDouble(3, DoubleEnv(), [](int rank) {
    GraphTraining training;
    const auto step = [&] {
      training.communicator().SendReceive(training.parameter(0).data(), rank < 2 ? rank + 1 : -1,
                                          training.parameter(1).data(), rank - 1, 10,
                                          DType::kFloat32, training.stream());
      return absl::OkStatus();
    };
    for (int i = 0; i < StepGraph::kUncapturedSteps; ++i) EXPECT(training.graph().Run(step).ok());
    EXPECT(training.graph().Capture(step).ok());
    EXPECT(training.graph().Replay().ok());
    return 0;
  });
  CHECK(codes == "0 0 0");
}

TEST_CASE("step graph: a captured step without a gradient costs the capture, not the group") {
  for (const int announced : {0, 1, 2}) {
    CAPTURE(announced);
    const auto codes = RunOnDouble(2, DoubleEnv(), [announced](int rank) {
      GraphTraining training;
      EXPECT(training.WarmUp());
      const absl::Status status = training.graph().Capture([&] {
        if (rank == 0) return training.Step();
        absl::Status first = training.ddp().ZeroGrad(training.stream());
        for (int id = 2; id > 2 - announced; --id) first.Update(training.Backward(id));
        first.Update(training.ddp().Finish(training.stream()));
        return first;
      });
      EXPECT(Has(status.ToString(), "capture a step: rank 1: "));
      EXPECT(Has(status.ToString(), "layer0"));
      EXPECT(training.communicator().error().ok());
      EXPECT(training.Train(4));
      EXPECT(training.graph().Capture(training.step()).ok());
      EXPECT(training.Replay(5));
      return 0;
    });
    CHECK(codes == "0 0");
  }
}

TEST_CASE("abort: who aborted is named once to those who wait in host memory") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    const GraphTraining training;
    ddp::Communicator& communicator = training.communicator();
    if (rank == 1) communicator.Abort("loss is not a number");
    EXPECT(communicator.host().Barrier()->Wait().message() ==
           "aborted by rank 1: loss is not a number");
    EXPECT(absl::IsAborted(training.AwaitEnd()));
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("step graph: a barrier may stand anywhere in a step") {
  for (const bool is_first : {true, false}) {
    CAPTURE(is_first);
    const auto codes = RunOnDouble(2, DoubleEnv(), [is_first](int) {
      GraphTraining training;
      EXPECT(training.WarmUp());
      const absl::Status status = training.graph().Capture([&] {
        if (is_first) training.communicator().Barrier();
        const absl::Status step = training.Step();
        if (!is_first) training.communicator().Barrier();
        return step;
      });
      EXPECT(Has(status.ToString(), "OK"));
      EXPECT(training.Replay(4));
      EXPECT(training.communicator().Barrier()->Wait().ok());
      EXPECT(training.Train(5));
      return 0;
    });
    CHECK(codes == "0 0");
  }
}

// Of one that was kept, and of one that was discarded.
TEST_CASE("step graph: work of another capture cannot be waited for in this one") {
  const auto codes = RunOnDouble(1, DoubleEnv(), [](int) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    const auto second = StepGraph::Create(training.communicator(), training.stream());
    EXPECT(second.ok());
    for (int i = 0; i < StepGraph::kUncapturedSteps; ++i) EXPECT((*second)->Run(Nothing).ok());
    for (const absl::Status& result : {absl::UnknownError("no"), absl::OkStatus()}) {
      std::unique_ptr<ddp::Work> work;
      const absl::Status captured = training.graph().Capture([&] {
        work = training.communicator().AllReduce(training.parameter(0).data(), 1, DType::kFloat32,
                                                 ReduceOp::kSum, training.stream());
        const absl::Status own = work->WaitOn(training.stream());
        return own.ok() ? result : own;
      });
      EXPECT(captured.ok() == result.ok());
      const absl::Status waited =
          (*second)->Capture([&] { return work->WaitOn(training.stream()); });
      EXPECT(Has(waited.ToString(), "is part of a graph: what is behind a replay"));
    }
    return 0;
  });
  CHECK(codes == "0");
}

std::string RecordOf(ddp::Communicator& communicator) {
  const auto path = communicator.DumpOperations();
  std::ostringstream text;
  if (path.ok()) text << std::ifstream(*path).rdbuf();
  return text.str();
}

// A replay stands for the numbers of all its operations, and writes one entry.
TEST_CASE("step graph: the record forgets the operations of a discarded capture") {
  const TempDir temp;
  const auto env = DoubleEnv({{"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()}});
  const auto codes = RunOnDouble(1, env, [](int) {
    GraphTraining training;
    ddp::Communicator& communicator = training.communicator();
    size_t count = 8;
    const auto step = [&] {
      for (int i = 0; i < 4; ++i) {
        communicator.AllReduce(training.parameter(0).data(), count, DType::kFloat32, ReduceOp::kSum,
                               training.stream());
      }
      return count == 8 ? absl::OkStatus() : absl::UnknownError("no");
    };
    const auto second = StepGraph::Create(communicator, training.stream());
    EXPECT(second.ok());
    for (int i = 0; i < StepGraph::kUncapturedSteps; ++i) {
      EXPECT(training.graph().Run(step).ok());
      EXPECT((*second)->Run(Nothing).ok());
    }
    EXPECT(training.graph().Capture(step).ok());
    count = 7;
    EXPECT(!(*second)->Capture(step).ok());
    EXPECT(training.graph().Replay().ok());
    count = 9;
    EXPECT(!training.graph().Run(step).ok());
    EXPECT(communicator.Barrier()->Wait().ok());
    const std::string record = RecordOf(communicator);
    EXPECT(Has(record, "\"op\": \"graph replay (4 operations)\""));
    EXPECT(record.find("float32 x 7") == std::string::npos);
    return 0;
  });
  CHECK(codes == "0");
}

TEST_CASE("host communicator: memory of a GPU is refused with a reason") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int) {
    const GraphTraining training;
    ddp::Communicator& host = training.communicator().host();
    float value = 1;
    EXPECT(host.AllReduce(&value, 1, DType::kFloat32, ReduceOp::kSum)->Wait().ok());
    EXPECT(value == 2);
    const absl::Status status =
        host.AllReduce(training.parameter(0).data(), 4, DType::kFloat32, ReduceOp::kSum)->Wait();
    EXPECT(Has(status.ToString(),
               "all-reduce (float32 x 4, sum): the input is memory of a GPU; this communicator, "
               "host(), takes host memory"));
    EXPECT(host.AllReduce(&value, 1, DType::kFloat32, ReduceOp::kSum)->Wait().ok());
    EXPECT(value == 4);
    return 0;
  });
  CHECK(codes == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
