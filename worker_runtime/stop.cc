#include "ddp/stop.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"
#include "worker_runtime/group_from_env.h"
#include "worker_runtime/stop_flag.h"

namespace ddp::internal {
namespace {

// As long as PyTorch's own collectives on the CPU: what one rank does between two calls - an
// evaluation, a checkpoint - is not limited further by asking.
constexpr std::chrono::minutes kTimeout(30);
constexpr char kKeySpace[] = "stop";

// The group of all ranks that ask. The process has one, which is never destroyed.
class Asking {
 public:
  static Asking& OfThisProcess() {
    static Asking& asking = *new Asking;
    return asking;
  }

  absl::StatusOr<bool> ShouldStop() {
    // Before the lock, which a forked child may have inherited held. Its threads and its place
    // among the ranks are the parent's.
    if (const pid_t owner = owner_; owner != 0 && owner != getpid()) {
      return absl::FailedPreconditionError(
          absl::StrCat("ask whether to stop: process ", getpid(), " was forked from process ",
                       owner, ", which has this rank's place in the group; ask there"));
    }
    const std::lock_guard lock(mutex_);
    if (!answer_.has_value()) {
      const absl::StatusOr<bool> answer = Ask();
      if (answer.ok() && !*answer) return false;
      // Nothing else will ever be heard. After "true" all ranks are here, so they part in order.
      answer_ = answer;
      if (answer.ok()) group_->Shutdown().IgnoreError();
      group_.reset();
    }
    return *answer_;
  }

  void Close() {
    if (owner_ != getpid()) return;
    const std::lock_guard lock(mutex_);
    Leave();
  }

  // At the end of the process, when another thread may be waiting for ranks.
  void CloseUnlessInUse() {
    if (owner_ != getpid()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) Leave();
  }

 private:
  Asking() {
    (void)std::atexit([] { OfThisProcess().CloseUnlessInUse(); });
  }

  absl::StatusOr<bool> Ask() {
    if (group_ == nullptr) {
      owner_ = getpid();
      auto group = GroupFromEnv({.timeout = kTimeout}, kKeySpace);
      if (!group.ok()) return group.status();
      group_ = *std::move(group);
    }
    return group_->ShouldStop();
  }

  void Leave() {
    group_.reset();
    answer_.reset();
    owner_ = 0;
  }

  std::mutex mutex_;              // held while ranks are waited for
  std::atomic<pid_t> owner_ = 0;  // who formed the group: a forked child has a copy
  // Guarded by mutex_.
  std::unique_ptr<ProcessGroup> group_;
  std::optional<absl::StatusOr<bool>> answer_;  // the last one that there will be
};

std::string& LastError() {
  static thread_local std::string error;
  return error;
}

}  // namespace
}  // namespace ddp::internal

extern "C" {

int ddp_stop_requested(void) {
  return ddp::internal::StopFlag::OfThisProcess().IsRequested() ? 1 : 0;
}

int ddp_should_stop(void) {
  using ddp::internal::LastError;
  const absl::StatusOr<bool> answer = ddp::internal::Asking::OfThisProcess().ShouldStop();
  LastError() = std::string(answer.status().message());
  if (!answer.ok()) return -1;
  return *answer ? 1 : 0;
}

const char* ddp_last_error(void) { return ddp::internal::LastError().c_str(); }

void ddp_should_stop_close(void) { ddp::internal::Asking::OfThisProcess().Close(); }

}  // extern "C"
