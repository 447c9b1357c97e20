// Who looks at the job, and what is asked of it from outside.
#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/agent_policy.h"
#include "launcher/agent/worker_end.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

// Where the user wants files.
std::string FolderForFiles(const LaunchConfig& config) {
  return config.log_dir.empty() || config.log_dir == "/dev/null" ? "." : config.log_dir;
}

// How long a terminal stays silent until it is told how far the job is.
constexpr Duration kProgressInterval = std::chrono::seconds(60);

}  // namespace

void Agent::Hear(const rendezvous::RendezvousEvent& event) {
  std::visit(
      [this](const auto& e) {
        using Event = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<Event, rendezvous::Asked>) {
          control_.Asked(e.id, e.body);
        } else if constexpr (std::is_same_v<Event, rendezvous::Answered>) {
          control_.Answered(e.part);
        } else {
          if constexpr (std::is_same_v<Event, rendezvous::ContactMade>) SayWhoIsBelieved(e);
          Feed(AgentEvent(e));
        }
      },
      event);
}

void Agent::SayWhoIsBelieved(const rendezvous::ContactMade& contact) {
  const std::string line = TrustLine(setup_.config, setup_.identity != nullptr);
  if (!contact.is_hosted_here || line.empty()) return;
  if (!std::exchange(has_said_trust_, true)) Say(line);
}

JobWatch::Options Agent::WatchOptions() const {
  const LaunchConfig& config = setup_.config;
  return {.part = {.node_id = node_id_.value,
                   .host = host_,
                   .run_id = config.run_id,
                   .program = setup_.program.title,
                   .min_nodes = config.nodes.min,
                   .max_nodes = config.nodes.max,
                   .max_restarts = config.max_restarts,
                   .keep_children = config.keep_children},
          .policy = {.hang_timeout = config.hang_timeout},
          .is_alone = config.rendezvous == RendezvousKind::kStandalone,
          .folders = {FolderForFiles(config), "."}};
}

JobWatch::Hooks Agent::WatchHooks() {
  return {
      .ask =
          [this](const rendezvous::Question& question) {
            if (client_ != nullptr) client_->Ask(question);
          },
      .answer =
          [this](uint64_t id, const std::string& body) {
            if (client_ != nullptr) client_->Answer(id, body);
          },
      .say = [this](const std::string& text) { Say(text); },
      .on_hang = [this](const HangFound& hang, const JobView& job) { OnHang(hang, job); },
      .on_look = [this](const std::shared_ptr<const JobSnapshot>& snapshot) { OnLook(snapshot); },
      .on_first_step =
          [this](double ago_s) {
            if (events_) events_->log().NoteFirstStep(UnixTimeMs(), ago_s);
          },
      .last_line = [&logs = logs_](int local_rank, Duration timeout) -> JobWatch::Hooks::LastLine {
        const RecentOutput recent = logs.LastLine(local_rank, timeout);
        return {recent.text, recent.written_at};
      }};
}

ControlPlane::Options Agent::ControlOptions() const {
  const LaunchConfig& config = setup_.config;
  const auto variable = [this](const char* name) {
    return setup_.environment.Get(name).value_or("");
  };
  std::string flights = variable("DDPRUN_FLIGHT_RECORDER_DIR");
  const std::string temp = variable("TMPDIR");
  if (flights.empty()) flights = temp;
  return {.host = host_,
          .is_alone = config.rendezvous == RendezvousKind::kStandalone,
          .stacks = {.run_id = config.run_id,
                     .host = host_,
                     .tool_path = variable("PATH"),
                     .flight_folder = flights.empty() ? "/tmp" : flights,
                     .other_places = {temp.empty() ? "/tmp" : temp, "/tmp"}}};
}

ControlPlane::Hooks Agent::ControlHooks() {
  return {.stop = [this](const StopOrder& order) { Feed(order); },
          .ask =
              [this](const rendezvous::Question& question) {
                if (client_ != nullptr) client_->Ask(question);
              },
          .answer =
              [this](uint64_t id, const std::string& body) {
                if (client_ != nullptr) client_->Answer(id, body);
              },
          .say = [this](const std::string& text) { Say(text); }};
}

void Agent::OpenControl(Duration delay) {
  control_timer_.expires_after(delay);
  control_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !core_.is_leaving()) control_.Start();
  });
}

void Agent::ServeWatchers(WatchSockets sockets) {
  const LaunchConfig& config = setup_.config;
  if (sockets.dashboard.is_open()) {
    control_.ServeDashboard(std::move(sockets.dashboard), config.dashboard->host);
  }
  if (sockets.metrics.is_open()) {
    control_.ServeMetrics(std::move(sockets.metrics), config.metrics->host);
  }
  if (config.event_file.empty()) return;
  events_ = std::make_unique<EventWriter>(
      io_, JobRecord::Part{node_id_, host_, setup_.program.title, config}, config.event_file,
      [this](const std::string& text) { Say(text); });
}

void Agent::OnLook(const std::shared_ptr<const JobSnapshot>& snapshot) {
  control_.Publish(snapshot);
  SayProgress(*snapshot);
  if (events_ == nullptr) return;
  const JobView& job = snapshot->job;
  if (watch_.record().has_rank_0()) events_->log().NoteProblems(job.problems, UnixTimeMs());
  if (job.effective_share) events_->log().NoteEffectiveShare(*job.effective_share);
}

void Agent::OnHang(const HangFound& hang, const JobView& job) {
  if (hang.is_new && setup_.config.on_hang == OnHang::kDump) {
    control_.Dump(FolderForFiles(setup_.config), {}, [this](const ControlPlane::DumpDone& done) {
      if (!done.sentence.empty()) Say(done.sentence);
      if (!done.folder.empty()) Say(DumpPlaceText(done.folder, done.why_there));
      if (!done.error.empty()) Say(absl::StrCat("warning: dump: ", done.error));
    });
  } else if (hang.is_new && !hang.ranks.empty()) {
    const int rank = hang.ranks.front();
    is_asking_where_ = true;
    control_.AskWhere(rank, [this, rank](const std::string& where) {
      is_asking_where_ = false;
      if (!where.empty()) Say(absl::StrCat("rank ", rank, ": ", where));
    });
  }
  const bool may_restart = setup_.config.on_hang == OnHang::kRestart && hang.may_restart;
  // First what it does; the next look sees the hang, too.
  if (!may_restart || is_asking_where_) return;
  // Where all have come, and none is to blame, one stands for them.
  const int rank =
      hang.ranks.empty() ? watch_.record().assignment().first_rank : hang.ranks.front();
  rendezvous::FailureReport report{.node = node_id_, .host = host_, .rank = rank};
  for (const NodeView& node : job.nodes) {
    for (const RankView& view : node.ranks) {
      if (view.rank != report.rank) continue;
      report.node = NodeId{node.id};
      report.host = node.host;
      report.node_rank = node.node_rank;
      report.local_rank = view.local_rank;
      report.pid = view.pid;
      report.step = view.step;
      const std::chrono::duration<double> progress(
          std::max(0.0, view.up_s.value_or(0) - (view.step ? view.step_age_s : 0)));
      report.progress = std::chrono::floor<std::chrono::milliseconds>(progress);
    }
  }
  report.exit_code = kExitHang;
  report.is_hang = true;
  report.message = "hang: " + hang.text;
  report.unix_time_ms = UnixTimeMs();
  Feed(HangJudged{Round{job.round}, std::move(report)});
}

void Agent::SayRunning() {
  progress_again_at_ = SteadyNow() + kProgressInterval;
  if (!is_on_terminal_) return;
  const rendezvous::Assignment& round = watch_.record().assignment();
  const int workers = setup_.config.workers_per_node;
  if (round.node_count == 1) {
    return Say(absl::StrCat("running: ", rendezvous::Counted(workers, "rank"), " on node ", host_));
  }
  std::vector<int> ranks;
  for (int i = 0; i < workers; ++i) ranks.push_back(round.first_rank + i);
  Say(absl::StrCat("running: ", RanksText(ranks), " of ", round.world_size, " on node ", host_));
}

void Agent::SayProgress(const JobSnapshot& snapshot) {
  const TimePoint now = SteadyNow();
  const bool is_due =
      now >= progress_again_at_ && now >= logs_.last_output_at() + kProgressInterval;
  if (!is_on_terminal_ || !is_due || !watch_.record().has_rank_0()) return;
  progress_again_at_ = now + kProgressInterval;
  Say(snapshot.job.sentence);
}

}  // namespace ddprun::launcher
