#include "ddp/spawn.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker_runtime/spawn/rank_news.h"
#include "worker_runtime/spawn/spawn_ranks.h"

namespace ddp {
namespace {

using internal::SpawnMark;

constexpr int kExitException = 1;  // for whoever sees the code alone
constexpr int kExitNoCode = 255;   // for what is no exit code; never 0

// What this process is to Spawn.
struct Origin {
  std::optional<SpawnMark> mark{};  // of a rank
  bool is_stray = false;            // it was meant to be a rank, or is a fork of one
};

// Whether the process that was started as this rank is still the one: not a fork of it, its caller
// alive, its pipe open.
bool IsRank(const SpawnMark& mark) {
  if (getppid() != mark.caller) return false;
  // The kernel drops it where the program has rights that its file gives. The caller may have died
  // before this.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != mark.caller) return false;
  struct stat status {};
  return fstat(mark.pipe, &status) == 0 && S_ISFIFO(status.st_mode) &&
         status.st_ino == mark.pipe_inode;
}

Origin FindOrigin() {
  char* const text = std::getenv(internal::kSpawnVar);
  const auto mark = internal::ParseSpawnMark(text != nullptr ? text : "");
  if (!mark) return {};
  if (!IsRank(*mark)) return {.is_stray = true};
  // No program that is executed from now on is this rank, and each may call Spawn. In place, since
  // other threads may read the environment.
  (void)fcntl(mark->pipe, F_SETFD, FD_CLOEXEC);
  text[0] = 'x';  // no mark begins so, however long its first number is
  return {.mark = mark};
}

// The pipe has room for all that is ever written. A caller that is gone does not read it.
void Tell(int pipe, const std::string& news) {
  while (write(pipe, news.data(), news.size()) < 0 && errno == EINTR) {
  }
}

int Called(const std::function<int(int)>& fn, const SpawnMark& mark) {
  try {
    int code = fn(mark.rank);
    if (code < 0 || code > 255) code = kExitNoCode;
    Tell(mark.pipe, internal::ReturnedNews(code));
    return code;
  } catch (const std::exception& error) {
    Tell(mark.pipe, internal::ExceptionNews(error.what()));
  } catch (...) {
    Tell(mark.pipe, internal::ExceptionNews("of a type that is not derived from std::exception"));
  }
  return kExitException;
}

}  // namespace

absl::Status Spawn(int ranks, std::function<int(int rank)> fn) {
  return internal::SpawnWithGrace(ranks, fn, std::chrono::seconds(30));  // as ddprun's
}

absl::Status internal::SpawnWithGrace(int ranks, const std::function<int(int rank)>& fn,
                                      std::chrono::milliseconds grace) {
  if (ranks < 1 || ranks > kMaxSpawnRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("spawn ", ranks, " ranks: expected 1 to ", kMaxSpawnRanks));
  }
  if (fn == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("spawn ", ranks, " ranks: there is no function to run"));
  }
  static const Origin origin = FindOrigin();
  static std::atomic<int> calls{0};
  const int call = ++calls;
  if (origin.is_stray) {
    return absl::FailedPreconditionError(
        absl::StrCat("spawn ", ranks,
                     " ranks: this process was started as a rank, and has forked or closed its "
                     "descriptors before it came to the call; do neither before Spawn"));
  }
  const std::optional<SpawnMark>& mark = origin.mark;
  if (!mark) return internal::SpawnRanks(ranks, call, grace);
  if (call < mark->call) return absl::OkStatus();
  if (call > mark->call) {
    return absl::FailedPreconditionError(
        absl::StrCat("spawn ", ranks, " ranks: this process is rank ", mark->rank,
                     " of another Spawn, whose function must not call Spawn"));
  }
  Tell(mark->pipe, internal::BegunNews());
  std::exit(Called(fn, *mark));
}

}  // namespace ddp
