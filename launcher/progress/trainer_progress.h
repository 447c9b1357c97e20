// Tells Kubeflow Trainer, from the node of rank 0, how far the training is.
#ifndef DDPRUN_LAUNCHER_PROGRESS_TRAINER_PROGRESS_H_
#define DDPRUN_LAUNCHER_PROGRESS_TRAINER_PROGRESS_H_

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/agent/file_thread.h"
#include "launcher/cli/environment.h"
#include "launcher/process/stop_file.h"
#include "launcher/progress/progress_core.h"
#include "launcher/progress/trainer_endpoint.h"

namespace ddprun::launcher {

// Carries out what ProgressCore decides, on the io_context's thread, which it never holds up: it
// looks at a word of memory there and asks threads of its own for the requests, one of them for the
// last. Each begins with its first request.
//
// Nothing that goes wrong here is the job's failure; the user hears of each kind of it once.
class TrainerProgress {
 public:
  using Say = std::function<void(const std::string& text)>;  // one line

  // The least time between two requests that the Trainer's documentation asks for.
  static constexpr Duration kInterval = std::chrono::seconds(5);

  // Null: nobody wants to be told.
  static std::unique_ptr<TrainerProgress> Make(boost::asio::io_context& io,
                                               const Environment& environment, Say say,
                                               Duration interval = kInterval);

  // Whether rank 0 needs a page to tell of its progress. Any thread.
  bool is_wanted() const { return endpoint_.ok(); }
  // A round begins. `page`: where its rank 0 will tell; null: on another node, or in vain.
  void BeginRound(bool has_rank_0, std::shared_ptr<const StopFile> page);
  // The job is over: the last request, which is given up after kLastTimeout.
  void End(bool is_success);
  // Calls `then` when that has been answered or given up, or at once.
  void AwaitEnd(std::function<void()> then);
  // No request hangs.
  bool is_idle() const { return thread_.is_idle() && last_thread_.is_idle(); }

 private:
  static constexpr Duration kTimeout = std::chrono::seconds(5);
  static constexpr Duration kLastTimeout = std::chrono::seconds(2);

  TrainerProgress(boost::asio::io_context& io, absl::StatusOr<TrainerEndpoint> endpoint, Say say,
                  Duration interval);
  void Look();
  void LookLater();
  void Post(const ProgressNews& news, Duration timeout);
  void Answered(const absl::Status& status, bool is_last);
  void Warn(const std::string& cause);

  const absl::StatusOr<TrainerEndpoint> endpoint_;
  const Say say_;
  ProgressCore core_;
  std::shared_ptr<const StopFile> page_;  // null: of no round of this node's
  boost::asio::steady_timer look_timer_;
  FileThread thread_;
  FileThread last_thread_;  // of the last request, which does not wait for one that hangs
  bool has_ended_ = false;
  bool is_last_asked_ = false;  // and not answered
  bool is_unusable_told_ = false;
  std::function<void()> at_end_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_TRAINER_PROGRESS_H_
