#include "ddp/spawn.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
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

// Which rank this process is; nullopt: of no Spawn.
std::optional<SpawnMark> FindMark() {
  const char* text = std::getenv(internal::kSpawnVar);
  const auto mark = internal::ParseSpawnMark(text != nullptr ? text : "");
  if (!mark || mark->caller != getppid()) return std::nullopt;
  struct stat status {};
  if (fstat(mark->pipe, &status) != 0 || !S_ISFIFO(status.st_mode) ||
      status.st_ino != mark->pipe_inode) {
    return std::nullopt;
  }
  // No program that is executed from now on is this rank.
  (void)fcntl(mark->pipe, F_SETFD, FD_CLOEXEC);
  return mark;
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
  if (ranks < 1 || ranks > kMaxSpawnRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("spawn ", ranks, " ranks: expected 1 to ", kMaxSpawnRanks));
  }
  if (fn == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("spawn ", ranks, " ranks: there is no function to run"));
  }
  static const std::optional<SpawnMark> mark = FindMark();
  static std::atomic<int> calls{0};
  const int call = ++calls;
  if (!mark) return internal::SpawnRanks(ranks, call);
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
