// ProcessGroup::FromEnv in every environment it may find, with real processes and a real store.
#include "ddp/process_group.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/contains.h"
#include "tests/support/rank_processes.h"
#include "tests/support/store_server.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;
using ddprun::testing::StartStoreServer;
using Variables = std::map<std::string, std::string>;

constexpr std::chrono::seconds kTimeout(30);
constexpr const char* kContract[] = {"RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "GROUP_RANK",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "DDPRUN_ROUND",
                                     "TORCHELASTIC_RESTART_COUNT",
                                     "DDPRUN_EPOCH",
                                     "TORCH_DISTRIBUTED_DEBUG"};

// This process's environment: of the contract's variables only those given.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    Clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() { Clear(); }

 private:
  static void Clear() {
    for (const char* name : kContract) unsetenv(name);
  }
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> FromEnv(Backend backend = Backend::kAuto) {
  return ProcessGroup::FromEnv({backend, kTimeout});
}

std::unique_ptr<ProcessGroup> Made() {
  auto group = FromEnv();
  REQUIRE_MESSAGE(group.ok(), group.status().ToString());
  return std::move(*group);
}

TEST_CASE("process group: without a launcher it is a group of one that needs no store") {
  Environment environment({});
  auto group = Made();
  CHECK(group->rank() == 0);
  CHECK(group->world_size() == 1);
  CHECK(group->local_rank() == 0);
  CHECK(group->local_world_size() == 1);
  CHECK(group->restart_count() == 0);
  CHECK(group->store() == nullptr);
  CHECK(group->description() == "local: a group of one");
  Communicator& communicator = group->communicator();
  CHECK(std::string(communicator.backend()) == "local");
  float value = 7, other = 0;
  CHECK(communicator.AllReduce(&value, 1, DType::kFloat32, ReduceOp::kAverage)->Wait().ok());
  CHECK(communicator.AllGather(&value, &other, 1, DType::kFloat32)->Wait().ok());
  CHECK(other == 7);
  CHECK(communicator.Barrier()->Wait().ok());
  CHECK(group->Shutdown().ok());
  CHECK(group->Shutdown().ok());
  absl::Status late = communicator.Barrier()->Wait();
  CHECK(absl::IsFailedPrecondition(late));
  CHECK(late.message() == "the process group was shut down");
}

TEST_CASE(
    "process group: a world of one under a launcher has the store, under the round's prefix") {
  const auto server = StartStoreServer();
  Environment environment({{"RANK", "0"},
                           {"WORLD_SIZE", "1"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(server->port())},
                           {"TORCHELASTIC_RESTART_COUNT", "4"},
                           {"DDPRUN_ROUND", "5"},
                           {"DDPRUN_EPOCH", "12"}});
  auto group = Made();
  CHECK(group->restart_count() == 4);
  REQUIRE(group->store() != nullptr);
  REQUIRE(group->store()->Set("seed", "17").ok());
  auto whole = Store::Connect("127.0.0.1", server->port(), kTimeout);
  REQUIRE(whole.ok());
  auto seed = (*whole)->Get("ddp/12.5/seed", std::chrono::seconds(1));
  CHECK_MESSAGE(seed.ok(), seed.status().ToString());
  CHECK(group->Shutdown().ok());
}

TEST_CASE("process group: a wrong variable is named with its value") {
  const Variables good = {
      {"RANK", "0"},         {"WORLD_SIZE", "2"},          {"LOCAL_RANK", "0"},
      {"MASTER_PORT", "80"}, {"MASTER_ADDR", "127.0.0.1"}, {"DDPRUN_ROUND", "1"}};
  const std::pair<const char*, const char*> rows[] = {{"RANK", "two"},
                                                      {"RANK", "2"},
                                                      {"RANK", "-1"},
                                                      {"RANK", ""},
                                                      {"WORLD_SIZE", "0"},
                                                      {"WORLD_SIZE", "2 "},
                                                      {"WORLD_SIZE", "9999999999"},
                                                      {"LOCAL_RANK", "x"},
                                                      {"LOCAL_WORLD_SIZE", "3"},
                                                      {"MASTER_PORT", "0"},
                                                      {"MASTER_PORT", "65536"},
                                                      {"MASTER_PORT", "http"},
                                                      {"DDPRUN_ROUND", "-3"},
                                                      {"DDPRUN_EPOCH", "0x7"},
                                                      {"TORCHELASTIC_RESTART_COUNT", "1.5"}};
  for (const auto& [name, value] : rows) {
    Variables variables = good;
    variables[name] = value;
    Environment environment(variables);
    auto group = FromEnv();
    CAPTURE(group.status().ToString());
    CHECK(absl::IsInvalidArgument(group.status()));
    CHECK(group.status().message() == Contains(absl::StrCat(name, "=\"", value, "\": expected")));
  }
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = good;
    variables.erase(name);
    Environment environment(variables);
    auto group = FromEnv();
    CAPTURE(group.status().ToString());
    CHECK(absl::IsInvalidArgument(group.status()));
    CHECK(group.status().message().find(absl::StrCat(name, " is not set")) == 0);
  }
}

TEST_CASE("process group: a timeout that is not above zero is refused") {
  Environment environment({});
  auto group = ProcessGroup::FromEnv({Backend::kAuto, std::chrono::milliseconds(0)});
  CHECK(absl::IsInvalidArgument(group.status()));
  CHECK(group.status().message() == Contains("the group's timeout is 0 ms: it must be above 0"));
}

TEST_CASE("process group: a debug level that is none is refused, as by PyTorch") {
  Environment environment(Variables{{"TORCH_DISTRIBUTED_DEBUG", "LOUD"}});
  const absl::Status status = FromEnv().status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "TORCH_DISTRIBUTED_DEBUG is \"LOUD\": it is OFF, INFO or DETAIL");
  for (const char* level : {"", "off", "INFO", "Detail"}) {
    Environment known(Variables{{"TORCH_DISTRIBUTED_DEBUG", level}});
    CHECK(FromEnv().ok());
  }
}

TEST_CASE("process group: a store that nobody serves is named") {
  const auto server = StartStoreServer();
  const std::string port = std::to_string(server->port());
  server->Close();
  Environment environment(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  // lower bound: nobody serves it
  auto group = ProcessGroup::FromEnv({Backend::kAuto, std::chrono::milliseconds(200)});
  CAPTURE(group.status().ToString());
  CHECK(absl::IsDeadlineExceeded(group.status()));
  CHECK(group.status().message() == Contains("127.0.0.1:" + port));
}

// The bodies of ranks: they run in processes of their own and say what is wrong.
int Wrong(const std::string& what) {
  RankProcesses::Say(what);
  return 1;
}

int CheckSum(ProcessGroup& group) {
  std::vector<int64_t> data(5000, group.rank() + 1);
  absl::Status status =
      group.communicator().AllReduce(data.data(), 5000, DType::kInt64, ReduceOp::kSum)->Wait();
  if (!status.ok()) return Wrong(status.ToString());
  const int64_t ranks = group.world_size();
  if (data != std::vector<int64_t>(5000, ranks * (ranks + 1) / 2)) return Wrong("a wrong sum");
  return 0;
}

void CheckRanks(const RankProcesses::Options& options, const RankProcesses::Body& body,
                const std::string& said = "") {
  RankProcesses ranks(options, body);
  for (int rank = 0; rank < options.world_size; ++rank) {
    CAPTURE(rank);
    CHECK(ranks.Hear(rank) == said);
    CHECK(ranks.Await(rank) == 0);
  }
}

int CheckOneGroup(Backend backend, int rank) {
  auto group = FromEnv(backend);
  if (!group.ok()) return Wrong(group.status().ToString());
  ProcessGroup& mine = **group;
  if (mine.rank() != rank || mine.world_size() != 4 || mine.local_rank() != rank ||
      mine.local_world_size() != 4 || mine.restart_count() != 2) {
    return Wrong("another place than the environment says");
  }
  if (rank == 3) mine.store()->Set("word", "from rank 3").IgnoreError();
  auto word = mine.store()->Get("word", kTimeout);
  if (!word.ok() || *word != "from rank 3") return Wrong("a store of its own");
  if (CheckSum(mine) != 0) return 1;
  absl::Status status = mine.Shutdown();
  if (!status.ok()) return Wrong(status.ToString());
  if (!mine.Shutdown().ok()) return Wrong("a second Shutdown() fails");
  if (!absl::IsFailedPrecondition(mine.communicator().Barrier()->Wait())) {
    return Wrong("a barrier after Shutdown()");
  }
  RankProcesses::Say(mine.description());
  return 0;
}

TEST_CASE("process group: the ranks of a round find each other, sum, and end in order") {
  RankProcesses::Options options;
  options.world_size = 4;
  options.env = {{"TORCHELASTIC_RESTART_COUNT", "2"}};
  CheckRanks(
      options, [](int rank) { return CheckOneGroup(Backend::kAuto, rank); },
      "shm: all ranks share a host");
  CheckRanks(
      options, [](int rank) { return CheckOneGroup(Backend::kTcp, rank); },
      "tcp between all ranks, as asked for");
  options.env_of_rank = [](int rank) {
    return Variables{{"DDPRUN_HOST_ID", "host" + std::to_string(rank / 2)}};
  };
  CheckRanks(
      options, [](int rank) { return CheckOneGroup(Backend::kAuto, rank); },
      "tcp between 2 nodes: rank 2 is not on rank 0's host");
}

TEST_CASE("process group: ranks that end at once after Shutdown() are not called dead") {
  for (Backend backend : {Backend::kAuto, Backend::kTcp}) {
    for (int i = 0; i < 10; ++i) {
      RankProcesses::Options options;
      options.world_size = 3;
      CheckRanks(options, [backend](int) {
        auto group = FromEnv(backend);
        if (!group.ok()) return Wrong(group.status().ToString());
        absl::Status status = (*group)->Shutdown();
        return status.ok() ? 0 : Wrong(status.ToString());  // ends without a destructor
      });
    }
  }
}

TEST_CASE("process group: Shutdown names a rank that died instead") {
  RankProcesses::Options options;
  options.world_size = 3;
  RankProcesses ranks(options, [](int rank) {
    auto group = FromEnv();
    if (!group.ok()) return Wrong(group.status().ToString());
    absl::Status status = (*group)->communicator().Barrier()->Wait();
    if (!status.ok()) return Wrong(status.ToString());
    RankProcesses::Say("ready");
    if (rank == 1) pause();
    RankProcesses::Say((*group)->Shutdown().ToString());
    return 0;
  });
  CHECK(ranks.Hear(1) == "ready");
  ranks.Signal(1, SIGKILL);
  for (int rank : {0, 2}) {
    CHECK(ranks.Hear(rank) == "ready");
    const std::string said = ranks.Hear(rank);
    CAPTURE(said);
    CHECK(said == Contains("UNAVAILABLE"));
    CHECK(said == Contains("rank 1"));
    CHECK(ranks.Await(rank) == 0);
  }
}

TEST_CASE("process group: a group can follow another one in the same round") {
  for (Backend backend : {Backend::kAuto, Backend::kTcp}) {
    RankProcesses::Options options;
    options.world_size = 3;
    CheckRanks(options, [backend](int) {
      for (int i = 0; i < 3; ++i) {
        auto group = FromEnv(backend);
        if (!group.ok()) return Wrong(group.status().ToString());
        if (CheckSum(**group) != 0) return 1;
        absl::Status status = (*group)->Shutdown();
        if (!status.ok()) return Wrong(status.ToString());
      }
      return 0;
    });
  }
}

std::unique_ptr<Store> WholeStore() {
  auto store =
      Store::Connect(std::getenv("MASTER_ADDR"),
                     static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT"))), kTimeout);
  return store.ok() ? std::move(*store) : nullptr;
}

bool AwaitChange(Store& store, const std::string& key, const std::string& old) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    auto value = store.Get(key, kTimeout);
    if (!value.ok()) return false;
    if (*value != old) return true;
    std::this_thread::yield();
  }
  return false;
}

// As real torchrun restarts: new ranks, the same store with all its keys, no DDPRUN_ROUND. The
// second attempt begins with rank 0, or with all others.
int AttemptTwice(int rank, int world_size, bool is_rank_0_first) {
  auto whole = WholeStore();
  if (whole == nullptr) return Wrong("no store");
  auto first = FromEnv();
  if (!first.ok()) return Wrong(first.status().ToString());
  (*first)->store()->Set("taken", "by the first attempt").IgnoreError();
  std::map<std::string, std::string> old;
  std::vector<std::string> watched = {"ddp/session"};
  const std::string session = whole->Get("ddp/session", kTimeout).value_or("");
  for (int other = 1; other < world_size; ++other) {
    watched.push_back(absl::StrCat("ddp/", session.substr(0, session.find('/')), "/hello/", other));
  }
  for (const std::string& key : watched) old[key] = whole->Get(key, kTimeout).value_or("");
  if (CheckSum(**first) != 0) return 1;
  if (!(*first)->store()->Check({"taken"}).value_or(false)) return Wrong("the key is not there");
  absl::Status status = (*first)->Shutdown();
  if (!status.ok()) return Wrong(status.ToString());
  first->reset();
  if (is_rank_0_first) watched.resize(1);
  if (!is_rank_0_first) watched.erase(watched.begin());
  for (const std::string& key : watched) {
    if ((rank == 0) == is_rank_0_first) break;
    if (!AwaitChange(*whole, key, old[key])) return Wrong(key + " does not change");
  }
  auto second = FromEnv();
  if (!second.ok()) return Wrong(second.status().ToString());
  if ((*second)->store()->Check({"taken"}).value_or(true))
    return Wrong("a key of the first attempt");
  if (CheckSum(**second) != 0) return 1;
  status = (*second)->Shutdown();
  return status.ok() ? 0 : Wrong(status.ToString());
}

TEST_CASE("process group: under real torchrun a second attempt takes no keys of the first") {
  RankProcesses::Options options;
  options.world_size = 3;
  options.env = {{"DDPRUN_ROUND", ""}, {"DDPRUN_EPOCH", ""}};
  for (bool is_rank_0_first : {true, false}) {
    CAPTURE(is_rank_0_first);
    CheckRanks(options, [&](int rank) { return AttemptTwice(rank, 3, is_rank_0_first); });
  }
}

}  // namespace
}  // namespace ddp::testing
