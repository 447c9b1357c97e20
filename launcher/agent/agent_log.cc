#include "launcher/agent/agent_log.h"

#include <spdlog/logger.h>

#include <chrono>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"

namespace ddprun::launcher {
namespace {

using Level = spdlog::level::level_enum;
using rendezvous::Assignment;

// `value` as it stands behind "key=": in quotes where it would not end at the next space.
std::string Value(const std::string& value) {
  const bool is_plain = !value.empty() && value.find_first_of(" '\"=") == std::string::npos;
  return is_plain ? value : Quoted(value);
}

std::string Ranks(int first, int count) {
  return count == 1 ? absl::StrCat(first) : absl::StrCat(first, "-", first + count - 1);
}

// A few words, and the values behind those of the run and the round. What repeats what is known,
// such as a deadline of the core or a line that the user sees anyway, is for trace.
struct Line {
  std::string what;
  std::string values = {};
  Level level = Level::debug;
};

const char* HowText(rendezvous::StopHow how) {
  return how == rendezvous::StopHow::kAfterStep ? "after_step"
         : how == rendezvous::StopHow::kNow     ? "now"
                                                : "gracefully";
}

std::string EndValues(const Assignment& round, const WorkerEnd& end) {
  return absl::StrCat(" rank=", round.first_rank + end.local_rank, " pid=", end.pid,
                      " exit_code=", end.exit_code, " cause=", Value(end.message));
}

struct LineOf {
  const AgentLog::Node& node;
  const Assignment& round;

  Line operator()(const AgentStarted&) const {
    return {"agent started", absl::StrCat(" node=", Value(node.id), " workers=", node.workers)};
  }
  Line operator()(const rendezvous::Waiting& e) const {
    return {"waiting", " reason=" + Value(e.reason), Level::info};
  }
  Line operator()(const rendezvous::Assigned& e) const {
    const Assignment& to = e.assignment;
    return {"assigned",
            absl::StrCat(" epoch=", to.epoch.value, " ranks=", Ranks(to.first_rank, node.workers),
                         " world_size=", to.world_size, " node_rank=", to.node_rank,
                         " nodes=", to.node_count, " restart=", to.restart_count,
                         " store=", to.master_addr, ":", to.master_port),
            Level::info};
  }
  Line operator()(const rendezvous::Drained& e) const {
    return {"draining", " reason=" + Value(e.reason), Level::info};
  }
  Line operator()(const rendezvous::Concluded& e) const {
    return {"verdict",
            absl::StrCat(" exit_code=", e.verdict.exit_code, " reason=", Value(e.verdict.reason)),
            Level::info};
  }
  Line operator()(const rendezvous::ContactMade& e) const {
    return {e.is_hosted_here ? "coordinator hosted here" : "coordinator reached",
            e.place.empty() ? "" : " at=" + Value(e.place), Level::info};
  }
  Line operator()(const rendezvous::ContactLost& e) const {
    return {"coordinator lost",
            absl::StrCat(" gone=", e.is_gone ? "yes" : "no", " reason=", Value(e.reason)),
            Level::info};
  }
  Line operator()(const rendezvous::ContactRestored&) const {
    return {"coordinator back", "", Level::info};
  }
  Line operator()(const rendezvous::RendezvousFailed& e) const {
    return {"rendezvous failed", absl::StrCat(" reason=", Value(e.message))};
  }
  Line operator()(const WorkersPrepared& e) const {
    return {"workers prepared", e.error.empty() ? "" : " error=" + Value(e.error)};
  }
  Line operator()(const WorkerEnd& e) const {
    if (e.was_told_to_stop) return {"worker ended when told to", EndValues(round, e)};
    return {"worker ended", EndValues(round, e), Level::info};
  }
  Line operator()(const FailureDescribed& e) const {
    return {
        "failure described",
        absl::StrCat(" rank=", e.report.rank,
                     e.report.left_peer ? absl::StrCat(" left_peer=", *e.report.left_peer) : "")};
  }
  Line operator()(const EndingFound& e) const {
    return {"workers about to end",
            absl::StrCat(" local_ranks=", absl::StrJoin(e.local_ranks, ","))};
  }
  Line operator()(const WorkersGone& e) const {
    return {"workers gone", e.have_read_stop ? " have_read_stop=yes" : ""};
  }
  Line operator()(const StopAsked& e) const { return {"stop asked for", " why=" + Value(e.why)}; }
  Line operator()(const rendezvous::StopRequested& e) const {
    return {"stop requested",
            absl::StrCat(" why=", Value(e.reason), e.is_to_scale_up ? " to_scale_up=yes" : "")};
  }
  Line operator()(const HangJudged& e) const {
    return {"hang judged", absl::StrCat(" rank=", e.report.rank)};
  }
  Line operator()(const StopOrder& e) const {
    return {"stop ordered", absl::StrCat(" how=", HowText(e.how), " why=", Value(e.reason))};
  }
  Line operator()(const SignalReceived& e) const {
    return {"signal received", absl::StrCat(" signal=", e.signal,
                                            e.is_kill    ? " kill=yes"
                                            : e.is_again ? " again=yes"
                                                         : "")};
  }
  Line operator()(const LocalFailure& e) const {
    return {"local failure",
            absl::StrCat(" exit_code=", e.exit_code, " reason=", Value(e.message))};
  }
  Line operator()(const HealthFound& e) const {
    return {"health found",
            absl::StrCat(" health=", HealthName(e.report.health), " line=", Value(e.report.line)),
            Level::info};
  }
  Line operator()(const CheckHealth&) const { return {"checking health"}; }
  Line operator()(const StopHealthCheck&) const { return {"stopping health check"}; }
  Line operator()(const ReportHealth& a) const {
    return {"reporting health", absl::StrCat(" health=", HealthName(a.report.health))};
  }
  Line operator()(const AgentTimePassed&) const { return {"deadline passed", "", Level::trace}; }
  Line operator()(const LeftoversGone& e) const {
    return {e.are_all_gone ? "leftovers gone" : "leftovers do not die"};
  }
  Line operator()(const ReportWritten&) const { return {"report written"}; }
  Line operator()(const rendezvous::ContactEnded&) const { return {"contact ended"}; }
  Line operator()(const LogsDrained& e) const {
    return {e.is_all_written ? "logs written" : "logs not written"};
  }

  Line operator()(const JoinRound&) const {
    return {"joining", absl::StrCat(" node=", Value(node.id), " workers=", node.workers),
            Level::info};
  }
  Line operator()(const PrepareWorkers&) const { return {"preparing workers"}; }
  Line operator()(const StartWorkers&) const {
    return {"starting workers", " ranks=" + Ranks(round.first_rank, node.workers)};
  }
  Line operator()(const StopWorkers& a) const {
    const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(a.grace);
    return {"stopping workers", absl::StrCat(" signal=", a.signal, " grace_ms=", grace.count()),
            Level::info};
  }
  Line operator()(const KillWorkers&) const { return {"killing workers"}; }
  Line operator()(const AskToStop& a) const {
    return {"asking workers to stop",
            absl::StrCat(" why=", Value(a.why), a.is_to_scale_up ? " to_scale_up=yes" : ""),
            Level::info};
  }
  Line operator()(const OrderStop& a) const {
    return {"ordering the job's stop", absl::StrCat(" how=", HowText(a.how)), Level::info};
  }
  Line operator()(const AnswerStop& a) const {
    return {"answering who ordered a stop",
            absl::StrCat(a.trouble.empty() ? "" : " trouble=" + Value(a.trouble),
                         a.ending.empty() ? "" : " ending=" + Value(a.ending))};
  }
  Line operator()(const DescribeFailure& a) const {
    return {"describing failure", EndValues(a.assignment, a.end)};
  }
  Line operator()(const LookForEnding&) const { return {"looking for workers about to end"}; }
  Line operator()(const ReportFailure& a) const {
    return {"reporting failure", absl::StrCat(" rank=", a.report.rank)};
  }
  Line operator()(const ReportFirstSuccess&) const { return {"reporting first success"}; }
  Line operator()(const ReportSuccess&) const { return {"reporting success"}; }
  Line operator()(const LeaveJob& a) const { return {"leaving", " reason=" + Value(a.reason)}; }
  Line operator()(const AckVerdict&) const { return {"acknowledging verdict"}; }
  Line operator()(const Say&) const { return {"telling the user", "", Level::trace}; }
  Line operator()(const PrintReport&) const { return {"printing report"}; }
  Line operator()(const EndJob& a) const {
    return {"ending", absl::StrCat(" exit_code=", a.exit_code), Level::info};
  }
  Line operator()(const DrainLogs&) const { return {"writing logs out"}; }
  Line operator()(const ExitAgent& a) const { return {a.is_clean ? "exiting" : "exiting at once"}; }
};

void Write(spdlog::logger& logger, Level level, std::string_view text) {
  logger.log(level, spdlog::string_view_t(text.data(), text.size()));
}

void Write(spdlog::logger& logger, const Line& line, const AgentLog::Node& node,
           const Assignment& round) {
  if (!logger.should_log(line.level)) return;
  const std::string round_text =
      round.round.value == 0 ? "" : absl::StrCat(" round=", round.round.value);
  Write(logger, line.level,
        absl::StrCat(line.what, " run=", Value(node.run_id), round_text, line.values));
}

}  // namespace

AgentLog::AgentLog(spdlog::logger& logger, Node node) : logger_(logger), node_(std::move(node)) {
  if (!logger_.should_log(Level::debug)) return;
  library_log_.emplace([&logger](const std::string& line) { Write(logger, Level::debug, line); });
}

void AgentLog::Note(const AgentEvent& event) {
  if (!logger_.should_log(Level::info)) return;
  // The core may find it stale, and round_ stays then.
  const auto* assigned = std::get_if<rendezvous::Assigned>(&event);
  const Assignment& round = assigned != nullptr ? assigned->assignment : round_;
  const Line line = std::visit(LineOf{node_, round}, event);
  if (!logger_.should_log(line.level)) return;
  const auto* waiting = std::get_if<rendezvous::Waiting>(&event);
  if (waiting != nullptr && std::exchange(waiting_for_, waiting->reason) == waiting->reason) return;
  if (waiting == nullptr) waiting_for_.clear();
  Write(logger_, line, node_, round);
}

void AgentLog::Note(const AgentAction& action) {
  if (!logger_.should_log(Level::info)) return;
  if (const auto* prepare = std::get_if<PrepareWorkers>(&action)) {
    round_ = prepare->assignment;
    pids_.clear();
  }
  Write(logger_, std::visit(LineOf{node_, round_}, action), node_, round_);
}

void AgentLog::Note(const WorkerStarted& event) {
  if (!logger_.should_log(Level::info)) return;
  pids_.push_back(event.pid);
  if (pids_.size() < static_cast<size_t>(node_.workers)) return;
  const std::string values = absl::StrCat(" ranks=", Ranks(round_.first_rank, node_.workers),
                                          " pids=", absl::StrJoin(pids_, ","));
  Write(logger_, {"workers started", values, Level::info}, node_, round_);
}

void AgentLog::NoteOneThread() {
  Write(logger_, Level::info,
        "OMP_NUM_THREADS is not set: every worker gets 1; set it to give workers more threads");
}

void AgentLog::NoteSiteDefaults(const std::string& line) { Write(logger_, Level::info, line); }

std::function<void(const std::string&)> AgentLog::LogStep() const {
  if (!logger_.should_log(Level::debug)) return {};
  return [&logger = logger_, run = Value(node_.run_id)](const std::string& step) {
    Write(logger, Level::debug, absl::StrCat("coordinator run=", run, " ", step));
  };
}

}  // namespace ddprun::launcher
