// How a group on GPUs ends when something does: each fault of the double, with its deadline and its
// words. What NCCL itself would do is to wait, for ten minutes or for ever.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/base/steady_clock.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using ddp::DType;
using ddp::ReduceOp;
using Seconds = std::chrono::duration<double>;

// What an operation may take, and how soon after it all must be out: 5 s by our promise, more here,
// for a loaded machine. What it tells apart is the ten minutes or the eternity of NCCL itself.
constexpr auto kTimeout = 3s;
constexpr auto kOut = 30s;

// What a rank says ahead of the third operation.
constexpr char kHere[] = "here";

// All ranks all-reduce until one of them fails, and say with what. `before` is called ahead of the
// third operation, the first that must end within kTimeout: a loaded machine may form groups
// slowly.
int ReduceUntilFailure(int rank, const std::function<void(int rank)>& before) {
  const auto group = GpuGroup();
  DeviceArray data({1, 2, 3});
  absl::Status status;
  for (int i = 1; status.ok(); ++i) {
    if (i == 3) {
      group->communicator().SetTimeout(kTimeout);
      RankProcesses::Say(kHere);
      before(rank);
    }
    status = group->communicator()
                 .AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kAverage)
                 ->Wait();
  }
  RankProcesses::Say(status.ToString());
  // The error is final.
  return group->communicator().error() == status &&
                 group->communicator().Barrier()->Wait() == status
             ? 0
             : 3;
}

struct Ends {
  std::string words;         // of rank 0
  int code = -1;             // of rank 0
  Duration took{0};          // from the culprit's third operation on
  std::optional<Json> dump;  // the flight recorder's, where the words say
  int left_peer = -1;        // in the error file of rank 0; -1: there is none
};

// "...; the last operations of rank 0 are in <path>".
std::optional<Json> DumpNamedIn(const std::string& words) {
  const std::string before = " are in ";
  const size_t at = words.rfind(before);
  if (at == std::string::npos) return std::nullopt;
  return ParseJson(ReadFile(words.substr(at + before.size())));
}

Ends RunFault(int size, int culprit, std::map<std::string, std::string> env,
              const std::function<void(int rank)>& before) {
  const TempDir temp;
  env["DDPRUN_FLIGHT_RECORDER_DIR"] = temp.path();
  env["DDPRUN_DOUBLE_DIR"] = temp.path();
  const auto error_file = [&](int rank) { return temp.File("error" + std::to_string(rank)); };
  RankProcesses ranks({.world_size = size,
                       .env = DoubleEnv(std::move(env)),
                       .env_of_rank =
                           [&](int rank) {
                             return std::map<std::string, std::string>{
                                 {"TORCHELASTIC_ERROR_FILE", error_file(rank)}};
                           }},
                      [&before](int rank) { return ReduceUntilFailure(rank, before); });
  CHECK(ranks.Hear(culprit) == kHere);
  const TimePoint begin = SteadyNow();
  if (culprit != 0) CHECK(ranks.Hear(0) == kHere);
  Ends ends;
  ends.words = ranks.Hear(0);
  ends.code = ranks.Await(0);
  ends.took = SteadyNow() - begin;
  ends.dump = DumpNamedIn(ends.words);
  if (const auto error = ParseJson(ReadFile(error_file(0))); error.has_value()) {
    ends.left_peer = error->get<int>("message.extraInfo.left_peer");
  }
  return ends;
}

// Two operations that went well and the third, which did not, with the times that tell it.
void CheckDump(const Ends& ends) {
  REQUIRE(ends.dump.has_value());
  const Json& dump = *ends.dump;
  const std::string rank = std::to_string(dump.get<int>("rank"));
  CHECK(ends.words == Contains("the last operations of rank " + rank + " are in "));
  CHECK(dump.get<std::string>("group") == "nccl");
  REQUIRE(dump.get_child("entries").size() == 3);
  for (const size_t index : {0, 1, 2}) {
    const Json& entry = ElementOf(dump, "entries", index);
    CHECK(entry.get<size_t>("sequence") == index + 1);
    CHECK(entry.get<std::string>("op") == "all-reduce (float32 x 3, average)");
    CHECK(entry.get<std::string>("state") == (index < 2 ? "done" : "failed"));
    CHECK(entry.count("started_ns") == (index < 2 ? 1 : 0));
    CHECK(entry.get<int64_t>("enqueued_ns") >= entry.get<int64_t>("queued_ns"));
  }
}

TEST_CASE("nccl: a rank that dies in a collective is named, and the others are out in 5 s") {
  for (const int size : {2, 4}) {
    const Ends ends = RunFault(size, 1, {}, [](int rank) {
      if (rank == 1) raise(SIGKILL);
    });
    CAPTURE(ends.words);
    CHECK(ends.words == Contains("UNAVAILABLE: all-reduce #3 (float32 x 3, average): "));
    CHECK(ends.words == Contains("rank 1"));
    CHECK(ends.left_peer == 1);
    CHECK(ends.code == 0);
    CHECK(Seconds(ends.took) < kOut);
  }
}

TEST_CASE("nccl: a rank that hangs is named 5 s after the timeout at the latest") {
  const Ends ends = RunFault(4, 2, {}, [](int rank) {
    if (rank == 2) raise(SIGSTOP);
  });
  CAPTURE(ends.words);
  CHECK(ends.words ==
        Contains("DEADLINE_EXCEEDED: all-reduce #3 (float32 x 3, average) timed out after 3 "
                 "s: rank 2 did not arrive; the last operations of rank "));
  CHECK(ends.left_peer == -1);
  CHECK(ends.code == 0);
  CheckDump(ends);
  CHECK(Seconds(ends.took) < kTimeout + kOut);
}

TEST_CASE("nccl: an operation that never ends on a device ends by the timeout") {
  const Ends ends = RunFault(2, 1, {{"DDPRUN_DOUBLE_FAULT", "hang=3@1"}}, [](int) {});
  CAPTURE(ends.words);
  CHECK(ends.words == Contains("all-reduce #3 (float32 x 3, average) timed out after 3 s: "));
  CHECK(ends.code == 0);
  CheckDump(ends);
  CHECK(Seconds(ends.took) < kTimeout + kOut);
}

// Rank 0's third operation never ends on its device, but did on rank 1's, which then has nothing to
// do.
TEST_CASE("nccl: a rank that has been through an operation is not missing in it") {
  RankProcesses ranks(
      {.world_size = 2,
       .env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "stays=3@0"}}),
       .env_of_rank = {}},
      [&](int rank) {
        const auto group = GpuGroup();
        ddp::Communicator& comm = group->communicator();
        DeviceArray data({1, 2, 3});
        absl::Status status;
        for (int i = 1; i <= 3; ++i) {
          if (i == 3) comm.SetTimeout(kTimeout);
          status = comm.AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kAverage)->Wait();
        }
        if (rank == 1 && !status.ok()) return 1;
        const TimePoint deadline = SteadyNow() + kTimeout + kOut;
        while (comm.error().ok() && SteadyNow() < deadline) std::this_thread::yield();
        RankProcesses::Say(comm.error().ToString());
        return 0;
      });
  for (const int rank : {0, 1}) {
    const std::string words = ranks.Hear(rank);
    CAPTURE(words);
    CHECK(words ==
          Contains("all-reduce #3 (float32 x 3, average) timed out after 3 s: all ranks are in "
                   "it or through it; NCCL or the network hangs"));
    CHECK(ranks.Await(rank) == 0);
  }
}

TEST_CASE("nccl: errors that NCCL reports later name the operation") {
  // Behind both, of which NCCL says no more, may be another rank's end: rank 1 is not blamed.
  for (const char* fault : {"async_error=3@1", "remote_error=3@1"}) {
    const Ends ends = RunFault(2, 1, {{"DDPRUN_DOUBLE_FAULT", fault}}, [](int) {});
    CAPTURE(fault);
    CAPTURE(ends.words);
    CHECK(ends.words == Contains("all-reduce #3 (float32 x 3, average)"));
    CHECK(ends.words == Contains("rank 1: "));
    CHECK(ends.left_peer == -1);
    CHECK(ends.code == 0);
    CHECK(Seconds(ends.took) < kOut);
  }
}

TEST_CASE("nccl: an abort that hangs ends the process") {
  const Ends ends = RunFault(2, 1, {{"DDPRUN_DOUBLE_FAULT", "abort_hangs@0"}}, [](int rank) {
    if (rank == 1) raise(SIGKILL);
  });
  CHECK((ends.code == 0 || ends.code == EXIT_FAILURE));
  CHECK(Seconds(ends.took) < kOut);
}

// At the first use of a peer NCCL's call waits for it: for ever, if there is no abort on another
// thread. After that the call returns on the rank that hangs in it as well.
TEST_CASE("nccl: a call that waits in NCCL ends by the timeout, on every rank") {
  for (const char* fault : {"call_hangs=3@0", "call_hangs=3@1"}) {
    const Ends ends = RunFault(2, 1, {{"DDPRUN_DOUBLE_FAULT", fault}}, [](int) {});
    CAPTURE(fault);
    CAPTURE(ends.words);
    CHECK(ends.words ==
          Contains("all-reduce #3 (float32 x 3, average) timed out after 3 s: all ranks "));
    CHECK(ends.code == 0);
    CHECK(Seconds(ends.took) < kTimeout + kOut);
  }
}

using Call = std::unique_ptr<ddp::Work>(ddp::Communicator& communicator, float* data);

std::unique_ptr<ddp::Work> ReduceTwo(ddp::Communicator& communicator, float* data) {
  return communicator.AllReduce(data, 2, DType::kFloat32, ReduceOp::kSum);
}

std::unique_ptr<ddp::Work> BroadcastThree(ddp::Communicator& communicator, float* data) {
  return communicator.Broadcast(data, 3, DType::kFloat32, /*root=*/0);
}

// What both ranks say when rank 0 calls one operation and rank 1 another, as their first.
std::vector<std::string> InDifferentOperations(const std::string& fault,
                                               std::chrono::milliseconds timeout, Call* of_rank_1) {
  RankProcesses ranks(
      {.world_size = 2, .env = DoubleEnv({{"DDPRUN_DOUBLE_FAULT", fault}}), .env_of_rank = {}},
      [&](int rank) {
        const auto group = GpuGroup(timeout);
        DeviceArray data({1, 2, 3});
        ddp::Communicator& comm = group->communicator();
        const auto work = rank == 1
                              ? of_rank_1(comm, data.data())
                              : comm.AllReduce(data.data(), 3, DType::kFloat32, ReduceOp::kSum);
        RankProcesses::Say(work->Wait().ToString());
        return 0;
      });
  const std::string first = ranks.Hear(0);
  return {first, ranks.Hear(1)};
}

// The real NCCL sees nothing and waits: then the ranks tell each other where they are, a second
// after the call. At the timeout the words would be others.
TEST_CASE("nccl: ranks in different operations are told which, long before the timeout") {
  const auto blind = [](Call* of_rank_1) { return InDifferentOperations("blind", 16s, of_rank_1); };
  const std::string head = "INVALID_ARGUMENT: the ranks call different operations: rank ";
  const std::string of_rank_0 = "0 all-reduce #1 (float32 x 3, sum)";
  for (const std::string& words : blind(ReduceTwo)) {
    CAPTURE(words);
    CHECK(words.starts_with(head));
    CHECK(words == Contains(of_rank_0));
    CHECK(words == Contains("1 all-reduce #1 (float32 x 2, sum)"));
  }
  for (const std::string& words : blind(BroadcastThree)) {
    CAPTURE(words);
    CHECK(words.starts_with(head));
    CHECK(words == Contains(of_rank_0));
    CHECK(words == Contains("1 broadcast #1 (float32 x 3, root 0)"));
  }
}

TEST_CASE("nccl: what NCCL itself says of a mismatch is passed on") {
  for (const std::string& words : InDifferentOperations("", 20s, ReduceTwo)) {
    CAPTURE(words);
    CHECK(words.starts_with("INVALID_ARGUMENT: rank "));
    CHECK(words == Contains(": all-reduce #1 (float32 x "));
    CHECK(words == Contains("count=3"));
    CHECK(words == Contains("count=2"));
  }
}

// The others' words when one rank cannot form the group, or a rank's own.
std::string FormingFault(std::map<std::string, std::string> env, std::chrono::milliseconds timeout,
                         Duration* took,
                         std::function<std::map<std::string, std::string>(int)> of_rank = {}) {
  const TempDir temp;
  env["DDPRUN_DOUBLE_DIR"] = temp.path();
  RankProcesses ranks(
      {.world_size = 2, .env = DoubleEnv(std::move(env)), .env_of_rank = std::move(of_rank)},
      [timeout](int) {
        RankProcesses::Say(kHere);
        GpuGroup(timeout);
        RankProcesses::Say("formed");
        return 0;
      });
  CHECK(ranks.Hear(0) == kHere);
  const TimePoint begin = SteadyNow();
  std::string words = ranks.Hear(0);
  ranks.Await(0);
  if (took != nullptr) *took = SteadyNow() - begin;
  return words;
}

TEST_CASE("nccl: a group that NCCL does not form ends by the deadline") {
  for (const char* fault : {"never_joins@1", "init_hangs@0"}) {
    Duration took{0};
    const std::string words = FormingFault({{"DDPRUN_DOUBLE_FAULT", fault}}, kTimeout, &took);
    CAPTURE(fault);
    CAPTURE(words);
    CHECK(words == Contains("join NCCL's group of 2 ranks: timed out after 3 s: "));
    CHECK(Seconds(took) < kTimeout + kOut);
  }
}

TEST_CASE("nccl: what a rank lacks for a GPU is said on every rank, by that rank's number") {
  const auto on_rank_1 = [](std::map<std::string, std::string> env) {
    return [env](int rank) { return rank == 1 ? env : std::map<std::string, std::string>(); };
  };
  const std::string old = DoubleEnv({}, "libgpu_double_old.so").at("DDPRUN_NCCL_LIB");
  struct Row {
    std::map<std::string, std::string> env;  // of rank 1
    std::vector<std::string> words;
  };
  const std::vector<Row> rows = {
      {{{"DDPRUN_CUDA_LIB", "/nowhere/libcuda.so.1"}}, {"rank 1: ", "/nowhere/libcuda.so.1"}},
      {{{"DDPRUN_NCCL_LIB", "/nowhere/libnccl.so.2"}}, {"rank 1: ", "/nowhere/libnccl.so.2"}},
      {{{"DDPRUN_NCCL_LIB", old}}, {"rank 1: ", "2.17.1", "2.18.3"}},
      {{{"DDPRUN_DOUBLE_GPUS", "0"}}, {"rank 1: ", "CUDA shows no GPU", "CUDA_VISIBLE_DEVICES"}},
      {{{"CUDA_VISIBLE_DEVICES", "-1"}}, {"rank 1: ", "CUDA shows no GPU"}},
      {{{"CUDA_VISIBLE_DEVICES", "0"}}, {"ranks 0 and 1 have the same GPU (GPU-"}},
      {{{"LOCAL_RANK", "9"}}, {"rank 1: ", "local rank 9 has no GPU: CUDA shows 8"}},
      {{{"NCCL_COMM_ID", "1.2.3.4:5"}}, {"rank 1: NCCL_COMM_ID is set", "unset it"}},
      {{{"DDPRUN_DOUBLE_FAULT", "cuinit=803"}}, {"rank 1: ", "cuInit"}},
  };
  for (const Row& row : rows) {
    const std::string words = FormingFault({}, 20s, nullptr, on_rank_1(row.env));
    CAPTURE(words);
    CHECK(words == Contains("device cuda: "));
    for (const std::string& word : row.words) {
      CAPTURE(word);
      CHECK(words == Contains(word));
    }
  }
}

TEST_CASE("nccl: devices of an automatic group are those that every rank has") {
  const auto describe = [](const std::map<std::string, std::string>& of_rank_1) {
    RankProcesses ranks(
        {.world_size = 2,
         .env = DoubleEnv(),
         .env_of_rank =
             [&of_rank_1](int rank) {
               return rank == 1 ? of_rank_1 : std::map<std::string, std::string>();
             }},
        [](int) {
          auto group =
              ddp::ProcessGroup::FromEnv({.timeout = 20s, .device = ddp::DeviceChoice::kAuto});
          RankProcesses::Say(group.ok() ? (*group)->description() : group.status().ToString());
          return group.ok() && (*group)->Shutdown().ok() ? 0 : 1;
        });
    std::string words = ranks.Hear(0);
    CHECK(ranks.Await(0) == 0);
    CHECK(ranks.Await(1) == 0);
    return words;
  };
  CHECK(describe({}) == "cuda, nccl 2.28.7: each of 2 ranks has a GPU of its own");
  CHECK(describe({{"CUDA_VISIBLE_DEVICES", "GPU-a1"}}) ==
        "cuda, nccl 2.28.7: each of 2 ranks has a GPU of its own");
  const std::string words = describe({{"CUDA_VISIBLE_DEVICES", "-1"}});
  CAPTURE(words);
  CHECK(words.find("shm: all ranks share a host; no GPUs (rank 1: CUDA shows no GPU") == 0);
}

TEST_CASE("nccl: a job that is done is not failed by a hang of NCCL at its end") {
  const std::string codes =
      RunOnDouble(2, DoubleEnv({{"DDPRUN_DOUBLE_FAULT", "finalize_hangs@0"}}), [](int) {
        const auto group = GpuGroup();
        group->communicator().SetTimeout(kTimeout);
        return group->Shutdown().ok() ? 0 : 1;
      });
  CHECK(codes == "0 0");
}

}  // namespace
}  // namespace ddprun::testing
