#include "tests/worker_runtime/spawn/ending_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
#include "ddp/spawn.h"

namespace ddp::testing {
namespace {

sigset_t BlockTerm() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  return term;
}

constexpr char kPipeVar[] = "SPAWN_PROGRAM_PIPE";

int FailWhenStopped(int rank) {
  const sigset_t term = BlockTerm();
  if (rank == 0) {
    char byte = 0;
    return read(std::atoi(std::getenv(kPipeVar)), &byte, 1) == 1 ? 7 : 8;
  }
  raise(SIGSTOP);
  int got = 0;
  if (sigwait(&term, &got) != 0) return 8;
  return write(STDOUT_FILENO, "rank 1 saw SIGTERM\n", 19) == 19 ? 0 : 8;
}

}  // namespace

int LeaveGroup(int rank) {
  auto group = ProcessGroup::FromEnv({});
  if (!group.ok()) return 5;
  if (rank == 3) _exit(7);
  return (*group)->communicator().Barrier()->Wait().ok() ? 0 : 6;
}

int LeaveGroupLate(int rank) {
  const sigset_t term = rank == 3 ? BlockTerm() : sigset_t{};
  auto group = ProcessGroup::FromEnv({});
  if (!group.ok()) return 5;
  if (rank != 3) return (*group)->communicator().Barrier()->Wait().ok() ? 0 : 6;
  group->reset();
  int got = 0;
  return sigwait(&term, &got) == 0 ? 7 : 8;
}

int LeaveWithoutNote(int rank) {
  BlockTerm();
  if (rank == 0) unsetenv("TORCHELASTIC_ERROR_FILE");
  return LeaveGroupLate(rank);
}

absl::Status SpawnStoppedRank() {
  int ends[2];
  if (std::getenv(kPipeVar) != nullptr) return Spawn(2, FailWhenStopped);
  if (pipe(ends) != 0) return absl::ErrnoToStatus(errno, "pipe");
  setenv(kPipeVar, absl::StrCat(ends[0]).c_str(), 1);
  std::thread watch([writer = ends[1]] {
    siginfo_t info{};
    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOWAIT) != 0) {
      if (errno != EINTR && errno != ECHILD) abort();
    }
    if (write(writer, "x", 1) != 1) abort();
  });
  absl::Status status = Spawn(2, FailWhenStopped);
  watch.join();
  return status;
}

}  // namespace ddp::testing
