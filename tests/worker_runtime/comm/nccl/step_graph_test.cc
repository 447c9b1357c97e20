// A training step as a CUDA graph, on the double of CUDA and NCCL.
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/graph_training.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::ReduceOp;
using ddp::StepGraph;
using Floats = std::vector<float>;

int ReplaySteps(bool is_sharded) {
  GraphTraining training(is_sharded);
  StepGraph& graph = training.graph();
  EXPECT(training.WarmUp());
  EXPECT(!graph.is_captured());
  EXPECT(graph.Capture(training.step()).ok());
  EXPECT(graph.is_captured());
  EXPECT(training.HasTrained(3));  // nothing was executed
  for (int number = 4; number < 8; ++number) EXPECT(training.Replay(number));
  // Without the host in between.
  for (int number = 8; number < 12; ++number) {
    training.NextInputs(number);
    EXPECT(graph.Replay().ok());
  }
  EXPECT(training.HasTrained(11));
  // Steps of both kinds follow each other as they like.
  EXPECT(training.Train(12));
  EXPECT(training.Replay(13));
  return 0;
}

TEST_CASE("step graph: replays train as uncaptured steps do") {
  const auto steps = [](int) { return ReplaySteps(false); };
  CHECK(RunOnDouble(2, DoubleEnv(), steps) == "0 0");
  CHECK(RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=1"}}), steps) == "0 0");
  CHECK(RunOnDouble(4, DoubleEnv(), steps) == "0 0 0 0");
  CHECK(RunOnDouble(1, DoubleEnv(), steps) == "0");
}

TEST_CASE("step graph: replays with sharded gradients train as uncaptured steps do") {
  const auto steps = [](int) { return ReplaySteps(true); };
  CHECK(RunOnDouble(1, DoubleEnv(), steps) == "0");
  CHECK(RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=1"}}), steps) == "0 0");
  CHECK(RunOnDouble(3, DoubleEnv(), steps) == "0 0 0");
}

TEST_CASE("step graph: each replay tells when its buckets were reduced") {
  const auto codes = RunOnDouble(2, DoubleEnv(), [](int) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    EXPECT(training.graph().Capture(training.step()).ok());
    ddp::ReductionTimes before = training.ddp().last_reduction();
    for (int number = 4; number < 7; ++number) {
      EXPECT(training.Replay(number));
      const ddp::ReductionTimes times = training.ddp().last_reduction();
      EXPECT(times.communication.count() > 0);
      EXPECT(times.backward_end > before.communication_end);
      EXPECT(times.communication_end > times.backward_end);
      before = times;
    }
    // The uncaptured step after it is the newest again.
    EXPECT(training.Train(7));
    EXPECT(training.ddp().last_reduction().backward_end > before.communication_end);
    return 0;
  });
  CHECK(codes == "0 0");
}

TEST_CASE("step graph: a replay comes between the operations called before and after it") {
  const auto codes = RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "slow=1"}}), [](int) {
    const auto group = GpuGroup();
    ddp::Communicator& comm = group->communicator();
    const ddp::Stream stream = NewStream(), other = NewStream();
    DeviceArray data({1});
    // Nobody waits for the work: it belongs to the graph all the same.
    const auto add_up = [&comm, &data](ddp::Stream on) {
      comm.AllReduce(data.data(), 1, DType::kFloat32, ReduceOp::kSum, on);
      return comm.error();
    };
    {
      auto graph = StepGraph::Create(comm, stream);
      EXPECT(graph.ok());
      float expected = 1;
      for (int i = 0; i < StepGraph::kUncapturedSteps; ++i) {
        EXPECT((*graph)->Run([&] { return add_up(stream); }).ok());
        expected *= 2;
      }
      EXPECT((*graph)->Capture([&] { return add_up(stream); }).ok());
      // More than may be in flight at once.
      for (int i = 0; i < 100; ++i) {
        EXPECT((*graph)->Replay().ok());
        expected *= 2;
        if (i % 20 != 0) continue;
        EXPECT(add_up(other).ok());
        expected *= 2;
      }
      EXPECT(comm.Barrier()->WaitOn(stream).ok());
      EXPECT(data.Read(stream) == Floats{expected});
    }
    EXPECT(group->Shutdown().ok());
    return 0;
  });
  CHECK(codes == "0 0");
}

// NCCL waits for graphs that hold its operations, so the group lets go of them first.
TEST_CASE("step graph: the group may end before the graph is destroyed") {
  const TempDir temp;
  const std::string path = temp.File("log");
  const auto codes = RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_LOG", path}}), [](int) {
    GraphTraining training;
    EXPECT(training.WarmUp());
    EXPECT(training.graph().Capture(training.step()).ok());
    EXPECT(training.Replay(4));
    EXPECT(training.group().Shutdown().ok());
    EXPECT(Has(training.graph().Replay().ToString(), "the process group was shut down"));
    return 0;
  });
  CHECK(codes == "0 0");
  const std::string log = ReadFile(path);
  CHECK(Has(log, "rank=0 finalized\n"));
  CHECK(Has(log, "rank=1 finalized\n"));
  CHECK(log != Contains(" waits for graphs"));
}

using Lines = std::vector<std::string>;

// What a rank does from the beginning to the end of its first capture, as the double saw it,
// without numbers: on the stream, and by the communicator. Those two run beside each other.
struct CaptureLog {
  Lines stream, ours;

  CaptureLog(const std::string& path, pid_t pid) {
    std::ifstream file(path);
    std::string line, name;
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string who, text, word;
      words >> word;
      if (word != "pid=" + std::to_string(pid)) continue;
      words >> word >> who;
      if (line.find(" begin capture=") != std::string::npos) name = who;
      if (name.empty()) continue;
      while (words >> word) {
        const std::string bare = word.substr(0, word.find('='));
        if (bare == word || bare == "capture") text += (text.empty() ? "" : " ") + bare;
      }
      (who == name ? stream : ours).push_back(text);
      if (line.find(" end capture=") != std::string::npos) return;
    }
  }
};

std::string Joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// No other line means that nothing waited or asked.
TEST_CASE("step graph: a capture forks to the communicator's stream, joins it, and waits nowhere") {
  const TempDir temp;
  const std::string path = temp.File("log");
  RankProcesses ranks(
      {.world_size = 2, .env = DoubleEnv({{"DDPRUN_DOUBLE_LOG", path}}), .env_of_rank = {}},
      [](int) {
        GraphTraining training;
        EXPECT(training.WarmUp());
        EXPECT(training.graph().Capture(training.step()).ok());
        return 0;
      });
  CHECK(ranks.Await(0) == 0);
  CHECK(ranks.Await(1) == 0);
  Lines stream = {"begin capture", "set memory"}, ours;
  for (int bucket = 0; bucket < GraphTraining::kParameters; ++bucket) {
    // An external record has a time in each replay; a plain one is where a stream forks or joins.
    for (const char* line : {"copy device to device", "record external", "record"}) {
      stream.push_back(line);
    }
    ours.push_back("wait");
    if (bucket == 0) ours.push_back("joins capture");
    for (const char* line : {"record external", "call allreduce", "enqueue allreduce captured",
                             "record external", "record"}) {
      ours.push_back(line);
    }
  }
  // The optimizer waits; so does, once more, the end of the capture.
  for (const char* line : {"wait", "copy device to device", "copy device to device",
                           "copy device to device", "wait", "end capture"}) {
    stream.push_back(line);
  }
  const CaptureLog log(path, ranks.pid(0));
  CHECK(Joined(log.stream) == Joined(stream));
  CHECK(Joined(log.ours) == Joined(ours));
}

}  // namespace
}  // namespace ddprun::testing
