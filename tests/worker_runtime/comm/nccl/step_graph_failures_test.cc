// How a step that cannot be captured is refused, and how a replay that hangs ends, on the double.
#include <filesystem>
#include <stdexcept>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DType;
using ddp::ReduceOp;
using ddp::StepGraph;
using ddp::internal::CudaStream;

TEST_CASE("step graph: host memory has none") {
  const auto group = ddp::ProcessGroup::FromEnv({});
  REQUIRE(group.ok());
  int stream = 0;
  const auto graph = StepGraph::Create((*group)->communicator(), &stream);
  CHECK(absl::IsUnimplemented(graph.status()));
  CHECK(graph.status().message() ==
        "capture a step: the backend local works in host memory; CUDA graphs need a group on GPUs");
}

TEST_CASE("step graph: the legacy stream has none") {
  const auto codes = RunOnDouble(1, DoubleEnv(), [](int) {
    const auto group = GpuGroup();
    EXPECT(absl::IsInvalidArgument(StepGraph::Create(group->communicator(), nullptr).status()));
    return 0;
  });
  CHECK(codes == "0");
}

TEST_CASE("step graph: a capture comes once, after three uncaptured steps of every rank") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training;
    StepGraph& graph = training.graph();
    EXPECT(absl::IsFailedPrecondition(graph.Replay()));
    EXPECT(training.Train(1));
    EXPECT(training.Train(2));
    // A step that the graph of rank 1 knows nothing of.
    training.NextInputs(3);
    EXPECT((rank == 0 ? graph.Run(training.step()) : training.Step()).ok());
    const absl::Status early = graph.Capture(training.step());
    EXPECT(absl::IsFailedPrecondition(early));
    EXPECT(early.message() ==
           "capture a step: rank 1: 2 steps were run before; it takes 3, in which NCCL connects "
           "and libraries allocate");
    EXPECT(!graph.is_captured());
    EXPECT(training.Train(4));
    EXPECT(graph.Capture(training.step()).ok());
    EXPECT(Has(graph.Capture(training.step()).ToString(), "rank 0: a step was captured before"));
    EXPECT(training.Replay(5));
    return 0;
  });
  CHECK(codes == "0 0");
}

struct BadStep {
  std::string words;
  std::function<absl::Status(GraphTraining&)> step;  // of rank 1
};

// What rank 1 does in a capture and the words that both ranks hear.
const std::vector<BadStep>& BadSteps() {
  static const auto* rows = new std::vector<BadStep>{
      {"rank 1: it is what it is",
       [](GraphTraining&) { return absl::UnknownError("it is what it is"); }},
      {"rank 1: the step threw: boom",
       [](GraphTraining&) -> absl::Status { throw std::runtime_error("boom"); }},
      // In the middle of a pass, before and after the first bucket was announced.
      {"rank 1: half a step",
       [](GraphTraining& training) {
         absl::Status status = training.ddp().ZeroGrad(training.stream());
         status.Update(training.Backward(0));
         status.Update(absl::UnknownError("half a step"));
         return status;
       }},
      {"rank 1: most of a step",
       [](GraphTraining& training) {
         absl::Status status = training.ddp().ZeroGrad(training.stream());
         status.Update(training.Backward(2));
         status.Update(training.Backward(1));
         status.Update(absl::UnknownError("most of a step"));
         return status;
       }},
      {"rank 1: the driver gave the capture up",
       [](GraphTraining& training) {
         const absl::Status status = training.Step();
         Driver().cuStreamSynchronize(static_cast<CudaStream>(training.stream()));
         return status;
       }},
      // Before the operations, which then meet a capture that is lost.
      {"the driver gave the capture up",
       [](GraphTraining& training) {
         Driver().cuStreamQuery(static_cast<CudaStream>(training.stream()));
         return training.Step();
       }},
      {"is part of a graph: nothing runs before its replay",
       [](GraphTraining& training) {
         const DeviceArray* const data = &training.parameter(0);
         return training.communicator()
             .AllReduce(data->data(), 1, DType::kFloat32, ReduceOp::kSum, training.stream())
             ->Wait();
       }},
      {"rank 1: all-reduce (float32 x 1, sum): its stream does not belong to the step",
       [](GraphTraining& training) {
         const DeviceArray* const data = &training.parameter(0);
         training.communicator().AllReduce(data->data(), 1, DType::kFloat32, ReduceOp::kSum,
                                           NewStream());
         return training.Step();
       }},
      {"the ranks captured different operations: rank 0 3, rank 1 6",
       [](GraphTraining& training) {
         absl::Status status = training.Step();
         status.Update(training.Step());
         return status;
       }},
  };
  return *rows;
}

TEST_CASE("step graph: after a capture that failed on one rank, all train on, and may try again") {
  for (const BadStep& bad : BadSteps()) {
    CAPTURE(bad.words);
    const auto codes = RunOnDouble(2, DoubleEnv(), [&bad](int rank) {
      GraphTraining training;
      StepGraph& graph = training.graph();
      EXPECT(training.WarmUp());
      const absl::Status status = graph.Capture(
          rank == 0 ? training.step() : [&training, &bad] { return bad.step(training); });
      EXPECT(Has(status.ToString(), bad.words));
      EXPECT(!graph.is_captured());
      EXPECT(training.communicator().error().ok());
      EXPECT(training.Train(4));
      EXPECT(graph.Capture(training.step()).ok());
      EXPECT(training.Replay(5));
      EXPECT(training.Train(6));
      return 0;
    });
    CHECK(codes == "0 0");
  }
}

// Between the all-gathers of two buckets. The step that is captured next begins with a ZeroGrad().
TEST_CASE("step graph: an optimizer's step that fails in a capture costs that and no more") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training(/*is_sharded=*/true);
    EXPECT(training.WarmUp());
    if (rank == 1) training.FailUpdate(absl::UnknownError("no update"));
    const absl::Status status = training.graph().Capture(training.step());
    EXPECT(Has(status.ToString(), "capture a step: rank 1: no update"));
    EXPECT(training.communicator().error().ok());
    EXPECT(training.Train(4));
    EXPECT(training.graph().Capture(training.step()).ok());
    EXPECT(training.Replay(5));
    EXPECT(training.Train(6));
    return 0;
  });
  CHECK(codes == "0 0");
}

// The pass in it never was: neither are the averages that a Step() would use.
TEST_CASE("step graph: behind a capture that failed there are no averages to step with") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training(/*is_sharded=*/true);
    EXPECT(training.WarmUp());
    const absl::Status captured = training.graph().Capture([&] {
      absl::Status status = training.ddp().ZeroGrad(training.stream());
      for (int id = 2; id >= 0; --id) status.Update(training.Backward(id));
      status.Update(training.ddp().Finish(training.stream()));
      return rank == 1 ? absl::UnknownError("no") : status;
    });
    EXPECT(Has(captured.ToString(), "capture a step: rank 1: no"));
    const absl::Status stepped = training.Update();
    EXPECT(absl::IsFailedPrecondition(stepped));
    EXPECT(Has(stepped.ToString(), "without averages"));
    EXPECT(training.Train(4));
    return 0;
  });
  CHECK(codes == "0 0");
}

// Its ZeroGrad() was before the capture, and holds behind it.
TEST_CASE("step graph: a step that ends with ZeroGrad is made again behind a capture that failed") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training(/*is_sharded=*/true);
    bool fails = false;
    const auto step = [&]() -> absl::Status {
      absl::Status status;
      for (int id = 2; id >= 0; --id) status.Update(training.Backward(id));
      status.Update(training.ddp().Finish(training.stream()));
      if (fails && rank == 1) return absl::UnknownError("no");
      if (status.ok()) status = training.Update();
      return status.ok() ? training.ddp().ZeroGrad(training.stream()) : status;
    };
    for (int number = 1; number <= 3; ++number) {
      training.NextInputs(number);
      EXPECT(training.graph().Run(step).ok());
    }
    fails = true;
    EXPECT(Has(training.graph().Capture(step).ToString(), "capture a step: rank 1: no"));
    fails = false;
    training.NextInputs(4);
    EXPECT(Has(training.graph().Run(step).ToString(), "OK"));
    EXPECT(training.HasTrained(4));
    EXPECT(training.graph().Capture(step).ok());
    EXPECT(training.Replay(5));
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("step graph: a call that is refused in a capture is no part of the graph") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    const absl::Status status = training.graph().Capture([&training, rank] {
      if (rank == 1) {
        float on_host = 0;
        const absl::Status refused =
            training.communicator()
                .AllReduce(&on_host, 1, DType::kFloat32, ReduceOp::kSum, training.stream())
                ->Wait();
        if (!absl::IsInvalidArgument(refused)) return absl::InternalError("it was not refused");
      }
      return training.Step();
    });
    EXPECT(status.ok());
    EXPECT(training.Replay(4));
    EXPECT(training.Train(5));
    EXPECT(training.Replay(6));
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("step graph: a rank that does not capture is named") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    training.communicator().SetTimeout(2s);
    if (rank == 0) EXPECT(Has(training.graph().Capture(training.step()).ToString(), "rank 1"));
    EXPECT(absl::IsDeadlineExceeded(training.AwaitEnd()));
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("step graph: a capture that only one rank's program made is refused on all") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int rank) {
    GraphTraining training;
    if (rank == 1) {
      Driver().cuStreamBeginCapture(static_cast<CudaStream>(training.stream()),
                                    ddp::internal::kCudaCaptureModeThreadLocal);
    }
    training.communicator().AllReduce(training.parameter(0).data(), 1, DType::kFloat32,
                                      ReduceOp::kSum, training.stream());
    EXPECT(Has(training.AwaitEnd().ToString(),
               "all-reduce (float32 x 1, sum): its stream is being captured, but not by "
               "ddp::StepGraph"));
    return 0;
  });
  CHECK(codes == "0 0");
}

// The words with which rank 0's group ends, and its flight record.
struct End {
  std::string words, record;
};

End RunReplays(const std::string& fault,
               const std::function<void(GraphTraining&, int rank)>& replays) {
  const TempDir temp;
  RankProcesses ranks({.world_size = 2,
                       .env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", fault},
                                         {"DDPRUN_FLIGHT_RECORDER_DIR", temp.path()}}),
                       .env_of_rank = {}},
                      [&replays](int rank) {
                        GraphTraining training;
                        EXPECT(training.WarmUp());
                        EXPECT(training.graph().Capture(training.step()).ok());
                        training.communicator().SetTimeout(3s);
                        replays(training, rank);
                        const absl::Status end = training.AwaitEnd();
                        RankProcesses::Say(end.ToString());
                        EXPECT(training.graph().Replay() == end);
                        return 0;
                      });
  End end;
  end.words = ranks.Hear(0);
  CHECK(ranks.Await(0) == 0);
  CHECK(ranks.Await(1) == 0);
  for (const auto& file : std::filesystem::directory_iterator(temp.path())) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("ddp-flight-0-")) end.record += ReadFile(file.path());
  }
  return end;
}

// Operations 1 to 3 are broadcasts, 4 to 12 of uncaptured steps, 13 to 15 captured; replays come
// from 16 on. The double counts what it executes: its 17th is the second of the second
// replay.
TEST_CASE("step graph: a replay that hangs ends by the timeout, and is one entry in the record") {
  const End end = RunReplays("hang=17@1", [](GraphTraining& training, int) {
    for (int i = 0; i < 3; ++i) training.graph().Replay().IgnoreError();
  });
  CHECK(end.words ==
        Contains(
            "DEADLINE_EXCEEDED: graph replay #19 (3 operations) timed out after 3 s: all ranks are "
            "in it"));
  CHECK(end.record ==
        Contains("{\"sequence\": 15, \"op\": \"all-reduce (float32 x 100, average)\", "
                 "\"state\": \"captured\""));
  CHECK(end.record ==
        Contains("{\"sequence\": 16, \"op\": \"graph replay (3 operations)\", \"state\": "
                 "\"replayed\""));
  CHECK(end.record ==
        Contains("{\"sequence\": 19, \"op\": \"graph replay (3 operations)\", \"state\": "
                 "\"failed\""));
  for (const char* inside : {"17", "18", "20", "21"}) {
    CHECK(end.record != Contains(std::string("\"sequence\": ") + inside));
  }
}

// The double's 13th operation is the first of the replay. A process whose NCCL does not abort in 2
// s ends with 1.
TEST_CASE("step graph: a group that fails is aborted while its program keeps the graph") {
  const TempDir temp;
  const std::string path = temp.File("log");
  const auto codes = RunOnDouble(
      2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "hang=13@1"}, {"DDPRUN_DOUBLE_LOG", path}}), [](int) {
        GraphTraining training;
        EXPECT(training.WarmUp());
        EXPECT(training.graph().Capture(training.step()).ok());
        training.communicator().SetTimeout(3s);
        EXPECT(training.graph().Replay().ok());
        EXPECT(Has(training.AwaitEnd().ToString(), "graph replay #16 (3 operations) timed out"));
        // Waits for the abort.
        EXPECT(!training.group().Shutdown().ok());
        return 0;
      });
  CHECK(codes == "0 0");
  const std::string log = ReadFile(path);
  CHECK(log == Contains("rank=0 aborted\n"));
  CHECK(log == Contains("rank=1 aborted\n"));
}

TEST_CASE("step graph: a rank that does not replay is named") {
  const End end = RunReplays("", [](GraphTraining& training, int rank) {
    if (rank == 0) training.graph().Replay().IgnoreError();
  });
  CHECK(end.words ==
        Contains("graph replay #16 (3 operations) timed out after 3 s: rank 1 did not arrive"));
}

// The abort that ends the call waits for the graph, which must go meanwhile.
TEST_CASE("step graph: a call that hangs in NCCL beside a graph ends with an error") {
  const auto env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "call_hangs=5@1"}});
  const auto codes = RunOnDouble(2, env, [](int) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    const ddp::Stream stream = NewStream();
    const DeviceArray data({1});
    const auto step = [&] {
      return comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, stream)
          ->WaitOn(stream);
    };
    const auto graph = StepGraph::Create(comm, stream);
    EXPECT(graph.ok());
    for (int i = 0; i < 3; ++i) EXPECT((*graph)->Run(step).ok());
    EXPECT((*graph)->Capture(step).ok());
    comm.SetTimeout(2s);
    EXPECT(absl::IsDeadlineExceeded(
        comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, stream)->Wait()));
    group->Shutdown().IgnoreError();  // while the program still has the graph
    return 0;
  });
  CHECK(codes == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
