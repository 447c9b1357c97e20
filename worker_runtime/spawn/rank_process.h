// One process of a Spawn, seen by its caller: started, told to stop, reaped.
#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_RANK_PROCESS_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_RANK_PROCESS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "process/exit_status.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/spawn/rank_news.h"

namespace ddp::internal {

// "NAME", "value".
using Variables = std::vector<std::pair<std::string, std::string>>;

// The arguments of this process, as the kernel has them.
absl::StatusOr<std::vector<std::string>> OwnArguments();

// A child that executes this program again. It is known by its pidfd alone, so that nothing here
// ever meets another child of the process, or a pid that was given anew.
class RankProcess {
 public:
  // `mark` without its caller and its pipe, which are added. `variables` stand in the child's
  // environment in place of those of the same name, and "" takes one out. The child is killed when
  // the calling thread ends. ResourceExhausted names the limit.
  static absl::StatusOr<std::unique_ptr<RankProcess>> Start(
      const std::vector<std::string>& arguments, const Variables& variables, SpawnMark mark);
  // Kills and reaps a process that has not been reaped.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // Readable when the process has ended.
  int pidfd() const { return pidfd_.get(); }
  bool is_reaped() const { return is_reaped_; }
  // Nothing happens where it has ended.
  void Signal(int signal);
  // By a signal, as SIGSTOP; not by a debugger.
  bool IsStopped();
  // Waits for the end.
  ddprun::ExitStatus Reap();
  // What it has written. Never waits.
  RankNews News();

 private:
  RankProcess(ddprun::UniqueFd pidfd, ddprun::UniqueFd news)
      : pidfd_(std::move(pidfd)), news_(std::move(news)) {}

  const ddprun::UniqueFd pidfd_;
  const ddprun::UniqueFd news_;
  bool is_reaped_ = false;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_RANK_PROCESS_H_
