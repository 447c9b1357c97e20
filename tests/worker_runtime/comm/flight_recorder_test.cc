#include "worker_runtime/comm/flight_recorder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>

#include "launcher/status/rank_page.h"
#include "tests/support/in_child.h"
#include "tests/support/json.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "worker_runtime/counters_page.h"

namespace ddp::internal {
namespace {

using ddprun::testing::ElementOf;
using ddprun::testing::InChild;
using ddprun::testing::Json;
using ddprun::testing::ParseJson;
using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using std::chrono::nanoseconds;

std::unique_ptr<FlightRecorder> Made() { return std::make_unique<FlightRecorder>(1, 4, "nccl"); }

Op AllReduce(uint64_t sequence) {
  Op op;
  op.kind = OpKind::kAllReduce;
  op.dtype = DType::kFloat32;
  op.count = 1000;
  op.sequence = sequence;
  return op;
}

Clock::time_point At(int64_t time) { return Clock::time_point(nanoseconds(time)); }

Json Read(const FlightRecorder& recorder) {
  const std::optional<Json> json = ParseJson(recorder.ToJson());
  REQUIRE_MESSAGE(json.has_value(), recorder.ToJson());
  return *json;
}

TEST_CASE("flight recorder: without an operation it tells whose it is") {
  const Json json = Read(*Made());
  CHECK(json.get<int>("rank") == 1);
  CHECK(json.get<int>("world_size") == 4);
  CHECK(json.get<std::string>("group") == "nccl");
  CHECK(json.get<int>("pid") == getpid());
  char host[256] = {};
  REQUIRE(gethostname(host, sizeof(host) - 1) == 0);
  CHECK(json.get<std::string>("host") == host);
  CHECK(json.get_child("entries").empty());
}

TEST_CASE("flight recorder: one moment is told on both clocks") {
  const auto recorder = Made();
  const int64_t before = Clock::now().time_since_epoch() / nanoseconds(1);
  const time_t earliest = time(nullptr);
  const Json json = Read(*recorder);
  CHECK(json.get<int64_t>("time_ns") >= before);
  CHECK(json.get<int64_t>("time_ns") <= Clock::now().time_since_epoch() / nanoseconds(1));
  const std::string text = json.get<std::string>("time");
  CAPTURE(text);
  tm parts{};
  const char* const rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  REQUIRE(rest != nullptr);
  CHECK(timegm(&parts) >= earliest);
  CHECK(timegm(&parts) <= time(nullptr));
  CHECK(std::string(rest).size() == 5);  // ".123Z"
}

TEST_CASE("flight recorder: an operation is told as far as it came") {
  const auto recorder = Made();
  const auto entry = [&recorder](size_t index) {
    return ElementOf(Read(*recorder), "entries", index);
  };
  recorder->Queued(AllReduce(1), At(10));
  const Json queued = entry(0);
  CHECK(queued.get<int>("sequence") == 1);
  CHECK(queued.get<std::string>("op") == "all-reduce (float32 x 1000, sum)");
  CHECK(queued.get<std::string>("state") == "queued");
  CHECK(queued.get<int64_t>("queued_ns") == 10);
  for (const char* later : {"enqueued_ns", "started_ns", "ended_ns"}) {
    CHECK(queued.count(later) == 0);
  }

  recorder->Changed(1, FlightState::kEnqueued, At(20));
  CHECK(entry(0).get<std::string>("state") == "enqueued");
  recorder->Ran(1, At(30), At(40));
  const Json done = entry(0);
  CHECK(done.get<std::string>("state") == "done");
  CHECK(done.get<int64_t>("enqueued_ns") == 20);
  CHECK(done.get<int64_t>("started_ns") == 30);
  CHECK(done.get<int64_t>("ended_ns") == 40);

  recorder->Queued(AllReduce(2), At(10));
  recorder->Changed(2, FlightState::kFailed, At(50));
  CHECK(entry(1).get<std::string>("state") == "failed");
  CHECK(entry(1).get<int64_t>("ended_ns") == 50);
  recorder->Queued(AllReduce(3), At(10));
  recorder->Changed(3, FlightState::kCaptured, At(60));
  CHECK(entry(2).get<std::string>("state") == "captured");
  recorder->Queued(AllReduce(4), At(10));
  recorder->Changed(4, FlightState::kRunning, At(70));
  CHECK(entry(3).get<std::string>("state") == "running");
  CHECK(entry(3).get<int64_t>("started_ns") == 70);
}

TEST_CASE("flight recorder: the oldest operations make room, and later news of them is ignored") {
  const auto recorder = Made();
  const uint64_t last = FlightRecorder::kEntries + 10;
  for (uint64_t sequence = 1; sequence <= last; ++sequence)
    recorder->Queued(AllReduce(sequence), At(10));
  recorder->Changed(10, FlightState::kFailed, At(1));
  recorder->Ran(10, At(1), At(2));
  recorder->Ran(last + 1, At(1), At(2));
  const Json json = Read(*recorder);
  REQUIRE(json.get_child("entries").size() == FlightRecorder::kEntries);
  for (size_t i = 0; i < FlightRecorder::kEntries; ++i) {
    const Json& entry = ElementOf(json, "entries", i);
    CHECK(entry.get<uint64_t>("sequence") == 11 + i);
    CHECK(entry.get<std::string>("state") == "queued");
  }
}

TEST_CASE("flight recorder: an entry is of one operation while others take its place") {
  const auto recorder = Made();
  const auto call = [&recorder](uint64_t sequence) {
    Op op = AllReduce(sequence);
    op.count = sequence;
    recorder->Queued(op, At(10));
  };
  // From the start on there is an entry for each number that is read.
  for (uint64_t sequence = 1; sequence <= FlightRecorder::kEntries; ++sequence) call(sequence);
  std::atomic<bool> is_over = false;
  std::thread caller([&] {
    for (uint64_t sequence = FlightRecorder::kEntries + 1; !is_over; ++sequence) call(sequence);
  });
  int mixed = 0;
  for (int i = 0; i < 50; ++i) {
    const Json json = Read(*recorder);
    for (const auto& [name, entry] : json.get_child("entries")) {
      const std::string count = entry.get<std::string>("sequence");
      mixed += entry.get<std::string>("op") != "all-reduce (float32 x " + count + ", sum)";
    }
  }
  is_over = true;
  caller.join();
  CHECK(mixed == 0);
}

// In a process of its own: what DDPRUN_FLIGHT_RECORDER_DIR and TMPDIR are is the environment's.
std::string DumpWith(const std::map<std::string, std::string>& env) {
  return InChild(env, [] {
    FlightRecorder recorder(3, 4, "nccl");
    recorder.Queued(AllReduce(1), At(10));
    const auto first = recorder.Dump();
    const auto again = recorder.Dump();
    if (FlightRecorder(3, 4, "nccl").Path() == recorder.Path()) return std::string("one name");
    if (first.ok() && again.ok() && *first != *again) return std::string("two names");
    return again.ok() ? *again : again.status().ToString();
  });
}

TEST_CASE("flight recorder: a dump is a file of the owner's in the folder that was asked for") {
  const TempDir dir, other;
  const std::string path =
      DumpWith({{"DDPRUN_FLIGHT_RECORDER_DIR", dir.path()}, {"TMPDIR", other.path()}});
  CAPTURE(path);
  REQUIRE(path.starts_with(dir.path().string() + "/ddp-flight-3-"));
  const std::optional<Json> json = ParseJson(ReadFile(path));
  REQUIRE(json.has_value());
  CHECK(json->get_child("entries").size() == 1);
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  CHECK(DumpWith({{"DDPRUN_FLIGHT_RECORDER_DIR", ""}, {"TMPDIR", other.path()}})
            .starts_with(other.path().string() + "/ddp-flight-3-"));
}

TEST_CASE("flight recorder: a dump that cannot be written says where") {
  const std::string words = DumpWith({{"DDPRUN_FLIGHT_RECORDER_DIR", "/nowhere"}});
  CHECK(words.starts_with("NOT_FOUND: write \"/nowhere/ddp-flight-3-"));
}

TEST_CASE("flight recorder: a link in the dump's place is replaced, not followed") {
  const TempDir dir;
  const std::string victim = dir.File("victim");
  const std::string path = InChild({{"DDPRUN_FLIGHT_RECORDER_DIR", dir.path()}}, [&victim] {
    const FlightRecorder recorder(0, 1, "local");
    if (symlink(victim.c_str(), recorder.Path().c_str()) != 0) return std::string("no link");
    const auto dump = recorder.Dump();
    return dump.ok() ? *dump : dump.status().ToString();
  });
  CHECK(ParseJson(ReadFile(path)).has_value());
  CHECK_FALSE(std::filesystem::exists(victim));
}

TEST_CASE("flight recorder: what is forgotten does not come back with later numbers") {
  const auto recorder = Made();
  for (uint64_t sequence = 1; sequence <= 5; ++sequence)
    recorder->Queued(AllReduce(sequence), At(10));
  recorder->Forget(2);
  CHECK(Read(*recorder).get_child("entries").size() == 2);
  recorder->Queued(AllReduce(5), At(10));
  const Json json = Read(*recorder);
  CHECK(json.get_child("entries").size() == 3);
  CHECK(ElementOf(json, "entries", 2).get<int>("sequence") == 5);
}

TEST_CASE("flight recorder: the launcher has its words for all kinds of operations") {
  for (size_t kind = 0; kind < std::size(kCounterOpNames); ++kind) {
    Op op;
    op.kind = static_cast<OpKind>(kind);
    const std::string name = kCounterOpNames[kind];
    CHECK(Describe(op).substr(0, Describe(op).find(" (")) == name);
  }
}

// "called/done" after each of `calls`, with "*" where something is under way; then what stands in
// the page once the recorder is gone.
using Calls = std::vector<std::function<void(FlightRecorder&)>>;

std::string CountsAfter(const Calls& calls, uint64_t key = 1) {
  const auto page = *ddprun::launcher::RankPage::Make();
  return InChild({{kCountersVar, std::to_string(page->fd())}}, [&] {
    std::string text;
    auto recorder = std::make_unique<FlightRecorder>(1, 4, "shm", GroupLabel{key, "ranks 0-3"});
    for (const auto& call : calls) {
      call(*recorder);
      for (const auto& group : page->Read().groups) {
        text += std::to_string(group.called) + "/" + std::to_string(group.done) +
                (group.busy_since_ns != 0 ? "* " : " ");
      }
    }
    recorder = nullptr;
    return text + (page->Read().groups.empty() ? "closed" : "open");
  });
}

auto Call(uint64_t sequence, bool is_captured = false) {
  return [=](FlightRecorder& recorder) {
    recorder.Queued(AllReduce(sequence), Clock::now(), is_captured);
  };
}
auto End(uint64_t sequence) {
  return [=](FlightRecorder& recorder) { recorder.Ran(sequence, Clock::now(), Clock::now()); };
}
auto Change(uint64_t sequence, FlightState state) {
  return [=](FlightRecorder& recorder) { recorder.Changed(sequence, state, Clock::now()); };
}

TEST_CASE("flight recorder: the launcher is told how far the group is") {
  CHECK(CountsAfter({Call(1), End(1), Call(2), Call(3), Change(2, FlightState::kRunning), End(2),
                     End(3)}) == "1/0* 1/1 2/1* 3/1* 3/1* 3/2* 3/3 closed");
  CHECK(CountsAfter({Call(1), End(1)}, 0) == "closed");
}

TEST_CASE("flight recorder: what waits and fails has ended when all before it has") {
  CHECK(CountsAfter({Call(1), Call(2), Call(3), Change(2, FlightState::kFailed),
                     Change(3, FlightState::kFailed), Change(1, FlightState::kFailed)}) ==
        "1/0* 2/0* 3/0* 3/0* 3/0* 3/3 closed");
  CHECK(CountsAfter({Call(1), Call(2), Change(2, FlightState::kFailed), End(1)}) ==
        "1/0* 2/0* 2/0* 2/2 closed");
}

TEST_CASE("flight recorder: the launcher hears of a captured operation by its replay alone") {
  const auto replay = [](FlightRecorder& recorder) {
    Op op;
    op.kind = OpKind::kReplay;
    op.count = 2;
    op.sequence = 4;
    recorder.Queued(op, Clock::now());
  };
  // One is in flight before the capture; the first capture is given up.
  const auto forget = [](FlightRecorder& recorder) { recorder.Forget(1); };
  CHECK(CountsAfter({Call(1), Call(2, true), Change(2, FlightState::kCaptured), End(1), forget,
                     Call(2, true), Change(2, FlightState::kCaptured), Call(3, true),
                     Change(3, FlightState::kCaptured), replay, End(4), Call(6), End(6)}) ==
        "1/0* 1/0* 1/0* 1/1 1/1 1/1 1/1 1/1 1/1 4/3* 4/5 6/5* 6/6 closed");
}

}  // namespace
}  // namespace ddp::internal
