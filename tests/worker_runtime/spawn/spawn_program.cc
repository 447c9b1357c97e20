// A program that calls ddp::Spawn as its arguments say, and prints what comes of it.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
#include "ddp/spawn.h"
#include "tests/worker_runtime/spawn/ending_ranks.h"
#include "worker_runtime/spawn/spawn_ranks.h"

namespace {

constexpr int kRanks = 4;

// One write, so that the lines of ranks do not mix.
void Say(const std::string& text) {
  const std::string line = text + "\n";
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) abort();
}

int Told(const absl::Status& status) {
  Say(status.ToString());
  return status.ok() ? 0 : 3;
}

[[noreturn]] void Sleep() {
  while (true) pause();
}

int SumOfRanks(int rank) {
  auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) return Told(group.status());
  int32_t sum = rank;
  absl::Status status =
      (*group)->communicator().AllReduce(&sum, 1, ddp::DType::kInt32, ddp::ReduceOp::kSum)->Wait();
  if (!status.ok()) return Told(status);
  Say(absl::StrCat("rank ", rank, " of ", (*group)->world_size(), ": ", sum));
  return (*group)->Shutdown().ok() ? 0 : 4;
}

// What a rank says whose group does not form.
int WithoutRank(int missing, int rank) {
  if (rank == missing) return 0;
  auto group = ddp::ProcessGroup::FromEnv({.timeout = std::chrono::minutes(10)});
  Say(absl::StrCat("rank ", rank, ": ", group.status().ToString()));
  return group.ok() ? 0 : 3;
}

// Rank 1 makes one group, the others two.
int OneGroupMore(int rank) {
  const int code = SumOfRanks(rank);
  return code != 0 || rank == 1 ? code : WithoutRank(1, rank);
}

// Each returns as soon as it has the group, whatever the others still do to get it.
int FormAndReturn(int) { return ddp::ProcessGroup::FromEnv({}).ok() ? 0 : 5; }

int SegfaultOfRank1(int rank) {
  if (rank == 1) raise(SIGSEGV);
  Sleep();
}

int ThrowOfRank0(int rank) {
  if (rank == 0) throw std::runtime_error("no \x1b[31mdata\n" + std::string(5000, 'x'));
  Sleep();
}

int CodeOfRank2(int rank) {
  if (rank == 2) return 7;
  Sleep();
}

int IgnoreTerm(int rank) {
  if (signal(SIGTERM, SIG_IGN) == SIG_ERR) return 8;
  auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) return Told(group.status());
  if (!(*group)->communicator().Barrier()->Wait().ok()) return 5;
  if (rank == 1) _exit(9);
  Say(absl::StrCat("ignoring ", rank, " ", getpid()));
  Sleep();
}

// The call of functions that outlive SIGTERM.
int ShortGrace() {
  // lower bound: they ignore SIGTERM
  return Told(ddp::internal::SpawnWithGrace(kRanks, IgnoreTerm, std::chrono::milliseconds(200)));
}

// What a function may do instead of returning.
int ExitOfRank1(int rank) {
  if (rank == 1) std::exit(9);
  Sleep();
}

int ExitOfAll(int rank) {
  Say(absl::StrCat("rank ", rank, " exits"));
  std::exit(0);
}

// As a daemon: the first descriptors that are opened are 0, 1 and 2, the store's and the pipes.
int ClosedStandardFiles() {
  if (getenv("RANK") == nullptr) {
    for (int fd = 0; fd < 3; ++fd) close(fd);
  }
  const absl::Status status = ddp::Spawn(2, [](int rank) {
    auto group = ddp::ProcessGroup::FromEnv({});
    if (!group.ok()) return 5;
    int32_t sum = rank;
    if (!(*group)
             ->communicator()
             .AllReduce(&sum, 1, ddp::DType::kInt32, ddp::ReduceOp::kSum)
             ->Wait()
             .ok()) {
      return 6;
    }
    return sum == 1 && (*group)->Shutdown().ok() ? 0 : 7;
  });
  return status.ok() ? 0 : 3;
}

// No program gets more than a third of its stack's limit, at least 128 KiB, as its environment.
int LargeEnvironment() {
  const rlimit limit{.rlim_cur = 512 << 10, .rlim_max = 512 << 10};
  for (int i = 0; i < 4; ++i) {
    const std::string name = absl::StrCat("LARGE_", i);
    if (setenv(name.c_str(), std::string(100'000, 'x').c_str(), 1) != 0) return 8;
  }
  if (setrlimit(RLIMIT_STACK, &limit) != 0) return 8;
  return Told(ddp::Spawn(2, [](int) { return 0; }));
}

int Nested(int) {
  return Told(ddp::Spawn(2, [](int) { return 0; }));
}

std::vector<int> OpenDescriptors() {
  std::vector<int> open;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) abort();
  while (const dirent* const entry = readdir(folder)) {
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != dirfd(folder)) {
      open.push_back(std::atoi(entry->d_name));
    }
  }
  closedir(folder);
  return open;
}

// How many more descriptors a rank has than the caller leaves open over an exec, and how many more
// the caller has when the call is over.
int Descriptors() {
  if (getenv("RANK") == nullptr) {
    if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0 || open("/dev/null", O_RDONLY) < 0) return 8;
    int left_open = 0;
    for (const int fd : OpenDescriptors()) left_open += (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
    setenv("LEFT_OPEN", std::to_string(left_open).c_str(), 1);
  }
  const size_t before = OpenDescriptors().size();
  const absl::Status status = ddp::Spawn(2, [](int rank) {
    const int more = static_cast<int>(OpenDescriptors().size()) - std::atoi(getenv("LEFT_OPEN"));
    Say(absl::StrCat("rank ", rank, " has ", more, " more"));
    return 0;
  });
  Say(absl::StrCat("the caller has ", OpenDescriptors().size() - before, " more"));
  return Told(status);
}

// A child of the caller's own that has ended before, and one that ends after.
int OwnChildren() {
  const pid_t ended = fork();
  if (ended == 0) _exit(21);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT);
  const pid_t living = fork();
  if (living == 0) Sleep();
  const absl::Status status = ddp::Spawn(2, [](int) { return 0; });
  int how = 0;
  Say(absl::StrCat("reaped ", waitpid(ended, &how, 0) == ended ? WEXITSTATUS(how) : -1));
  Say(waitpid(living, &how, WNOHANG) == 0 ? "the other one lives" : "the other one is gone");
  kill(living, SIGKILL);
  waitpid(living, &how, 0);
  return Told(status);
}

int TwoCalls() {
  const absl::Status first = ddp::Spawn(2, [](int rank) {
    Say(absl::StrCat("first ", rank));
    return 0;
  });
  const absl::Status second = ddp::Spawn(3, [](int rank) {
    Say(absl::StrCat("second ", rank));
    return 0;
  });
  return first.ok() ? Told(second) : Told(first);
}

int FromThread() {
  absl::Status status;
  std::thread([&status] { status = ddp::Spawn(2, SumOfRanks); }).join();
  return Told(status);
}

int IgnoredChildSignal(const std::function<int(int)>& fn) {
  if (signal(SIGCHLD, SIG_IGN) == SIG_ERR) return 8;
  return Told(ddp::Spawn(kRanks, fn));
}

int WrongArguments() {
  for (const int ranks : {0, -1, ddp::kMaxSpawnRanks + 1}) {
    Told(ddp::Spawn(ranks, [](int) { return 0; }));
  }
  return Told(ddp::Spawn(1, nullptr));
}

// The limit is met after some ranks have started.
int FewDescriptors() {
  const rlimit limit{.rlim_cur = 24, .rlim_max = 24};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  const int code = Told(ddp::Spawn(64, [](int) -> int { Sleep(); }));
  Say(waitpid(-1, nullptr, 0) < 0 ? "no child is left" : "a child is left");
  return code;
}

// All ranks have started when it is seen that their connections do not fit.
int FewConnections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  limit.rlim_cur = OpenDescriptors().size() + 2 * 40 + 20;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
  return Told(ddp::Spawn(40, [](int) -> int { Sleep(); }));
}

// A rank that never comes to the call: it is no rank of the first process's arguments.
int Missing() {
  if (getenv("RANK") != nullptr) return 0;
  return Told(ddp::Spawn(2, SumOfRanks));
}

// As a daemon does. Each rank forks, too, and the fork is no caller.
int ForkBefore() {
  const pid_t child = fork();
  if (child == 0) _exit(Told(ddp::Spawn(2, [](int) { return 0; })));
  int how = 0;
  return waitpid(child, &how, 0) == child ? WEXITSTATUS(how) : 8;
}

int CloseBefore() {
  for (int fd = 3; fd < 100; ++fd) close(fd);
  return Told(ddp::Spawn(2, [](int) { return 0; }));
}

// A program that a rank starts may call Spawn for itself.
int SpawnOfRank(int rank) {
  if (rank != 0) return 0;
  const pid_t child = fork();
  if (child == 0) execl("/proc/self/exe", "spawn_program", "one", nullptr);
  int how = 0;
  return waitpid(child, &how, 0) == child && WIFEXITED(how) ? WEXITSTATUS(how) : 8;
}

// What a rank executes may call it, too, when the rank is of a call whose number has two digits.
int TwelfthCall() {
  for (int i = 0; i < 11; ++i) {
    if (!ddp::Spawn(1, [](int) { return 0; }).ok()) return 8;
  }
  return Told(ddp::Spawn(1, SpawnOfRank));
}

}  // namespace

int main(int argc, char** argv) {
  using Fn = std::function<int(int)>;
  const std::map<std::string, Fn> functions = {
      {"sum", SumOfRanks},
      {"without-rank-1", [](int rank) { return WithoutRank(1, rank); }},
      {"without-rank-0", [](int rank) { return WithoutRank(0, rank); }},
      {"one-group-more", OneGroupMore},
      {"form-and-return", FormAndReturn},
      {"segfault", SegfaultOfRank1},
      {"throw", ThrowOfRank0},
      {"code", CodeOfRank2},
      {"leave", ddp::testing::LeaveGroup},
      {"leave-late", ddp::testing::LeaveGroupLate},
      {"leave-without-note", ddp::testing::LeaveWithoutNote},
      {"exit", ExitOfRank1},
      {"exit-all", ExitOfAll},
      {"nested", Nested},
      {"spawn-of-rank", SpawnOfRank},
      {"number", [](int) -> int { throw 5; }},
      {"large", [](int) { return 256; }},
      {"sleep", [](int rank) -> int {
         Say(absl::StrCat("asleep ", rank, " ", getpid()));
         Sleep();
       }}};
  const std::map<std::string, std::function<int()>> programs = {
      {"one", [] { return Told(ddp::Spawn(1, SumOfRanks)); }},
      {"descriptors", Descriptors},
      {"own-children", OwnChildren},
      {"twelfth-call", TwelfthCall},
      {"two-calls", TwoCalls},
      {"from-thread", FromThread},
      {"wrong-arguments", WrongArguments},
      {"few-connections", FewConnections},
      {"few-descriptors", FewDescriptors},
      {"missing", Missing},
      {"ignore-term", ShortGrace},
      {"stopped-rank", [] { return Told(ddp::testing::SpawnStoppedRank()); }},
      {"closed-standard-files", ClosedStandardFiles},
      {"large-environment", LargeEnvironment},
      {"fork-before", ForkBefore},
      {"close-before", CloseBefore},
      {"ignored-ok", [] { return IgnoredChildSignal(SumOfRanks); }},
      {"ignored-code", [] { return IgnoredChildSignal(CodeOfRank2); }},
      {"ignored-signal", [] { return IgnoredChildSignal(SegfaultOfRank1); }}};
  const std::string what = argc > 1 ? argv[1] : "";
  if (const auto found = functions.find(what); found != functions.end()) {
    return Told(ddp::Spawn(kRanks, found->second));
  }
  if (const auto found = programs.find(what); found != programs.end()) return found->second();
  return 2;
}
