#include "launcher/progress/trainer_progress.h"

#include <boost/asio/io_context.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/worker_end.h"
#include "launcher/cli/text.h"
#include "launcher/progress/trainer_post.h"
#include "launcher/report/job_reporter.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// So that the request itself says what it waits for.
constexpr Duration kSlack = std::chrono::milliseconds(500);

}  // namespace

std::unique_ptr<TrainerProgress> TrainerProgress::Make(boost::asio::io_context& io,
                                                       const Environment& environment, Say say,
                                                       Duration interval) {
  std::optional<absl::StatusOr<TrainerEndpoint>> endpoint = FindTrainer(environment);
  if (!endpoint) return nullptr;
  return std::unique_ptr<TrainerProgress>(
      new TrainerProgress(io, *std::move(endpoint), std::move(say), interval));
}

TrainerProgress::TrainerProgress(boost::asio::io_context& io,
                                 absl::StatusOr<TrainerEndpoint> endpoint, Say say,
                                 Duration interval)
    : endpoint_(std::move(endpoint)),
      say_(std::move(say)),
      core_(interval),
      look_timer_(io),
      thread_(io),
      last_thread_(io) {}

void TrainerProgress::BeginRound(bool has_rank_0, std::shared_ptr<const StopFile> page) {
  if (has_rank_0 && !endpoint_.ok() && !std::exchange(is_unusable_told_, true)) {
    Warn(std::string(endpoint_.status().message()));
  }
  page_ = has_rank_0 && endpoint_.ok() ? std::move(page) : nullptr;
  if (page_ == nullptr) return static_cast<void>(look_timer_.cancel());
  core_.BeginRound();
  LookLater();
}

void TrainerProgress::LookLater() {
  look_timer_.expires_at(ToSteady(core_.next_look()));
  look_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !has_ended_) Look();
  });
}

void TrainerProgress::Look() {
  if (page_ == nullptr) return;
  if (const auto news = core_.Look(SteadyNow(), page_->progress())) Post(*news, kTimeout);
  LookLater();
}

void TrainerProgress::Post(const ProgressNews& news, Duration timeout) {
  const bool is_last = has_ended_;
  FileThread& thread = is_last ? last_thread_ : thread_;
  thread.Start();
  // The work would be done here.
  if (!thread.has_thread()) {
    return Answered(absl::ResourceExhaustedError("no thread is left for it"), is_last);
  }
  is_last_asked_ = is_last;
  const std::string body = ProgressBody(news, UtcText(UnixTimeMs(), 'T'));
  // The thread owns all that it touches: it may be left behind.
  thread.Ask<absl::Status>(
      "progress", endpoint_->url, timeout,
      [endpoint = *endpoint_, body, limit = timeout - kSlack] {
        return PostToTrainer(endpoint, body, limit);
      },
      [this, is_last](std::optional<absl::Status> answer) {
        Answered(answer.value_or(absl::DeadlineExceededError("no answer in time")), is_last);
      });
}

void TrainerProgress::Answered(const absl::Status& status, bool is_last) {
  if (core_.Answered(status)) {
    Warn(absl::StrCat("POST ", EscapeControl(endpoint_->url), ": ", std::string(status.message())));
  }
  if (!is_last) return;
  is_last_asked_ = false;
  if (const auto then = std::exchange(at_end_, nullptr)) then();
}

void TrainerProgress::Warn(const std::string& cause) {
  say_(absl::StrCat("warning: Kubeflow Trainer does not hear of the progress: ", cause,
                    "; the job is not affected"));
}

void TrainerProgress::End(bool is_success) {
  has_ended_ = true;
  look_timer_.cancel();
  if (page_ == nullptr) return;
  if (const auto news = core_.End(page_->progress(), is_success)) Post(*news, kLastTimeout);
}

void TrainerProgress::AwaitEnd(std::function<void()> then) {
  if (!is_last_asked_) return then();
  at_end_ = std::move(then);
}

}  // namespace ddprun::launcher
