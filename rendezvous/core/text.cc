#include "rendezvous/core/text.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/bad_nodes.h"

namespace ddprun::rendezvous {
namespace {

std::string StampText(Epoch epoch, Round round) {
  return absl::StrCat(epoch.value, ".", round.value);
}

std::string Line(const char* what, const Stamp& stamp) {
  return absl::StrCat(what, " session=", stamp.session.value,
                      " stamp=", StampText(stamp.epoch, stamp.round));
}

std::string ExitText(const FailureReport& report) {
  return absl::StrCat("rank=", report.rank, " exit_code=", report.exit_code,
                      report.signal == 0 ? "" : absl::StrCat(" signal=", report.signal));
}

std::string HealthText(const HealthReport& report) {
  return absl::StrCat(HealthName(report.health), " \"", report.line, "\"");
}

struct EventRenderer {
  std::string operator()(const NodeJoined& e) const {
    const NodeInfo& node = e.node;
    return absl::StrCat(Line("join", e.stamp), " node=", node.id.value, " host=", node.host,
                        " from=", e.source_addr.empty() ? "here" : e.source_addr,
                        " workers=", node.local_world_size, e.held ? " running" : "",
                        e.restart_count == 0 ? "" : absl::StrCat(" restart=", e.restart_count),
                        node.health == HealthReport{} ? "" : " " + HealthText(node.health),
                        node.node_rank < 0 ? "" : absl::StrCat(" node_rank=", node.node_rank),
                        node.is_endpoint_node ? " endpoint" : "");
  }
  std::string operator()(const HeartbeatReceived& e) const {
    return Line(e.is_stuck ? "heartbeat of a stuck agent" : "heartbeat", e.stamp);
  }
  std::string operator()(const NodeLeft& e) const {
    return absl::StrCat(Line("leave", e.stamp), " reason=\"", e.reason, "\"");
  }
  std::string operator()(const WorkersFailed& e) const {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(e.age);
    return absl::StrCat(Line("failed", e.stamp), " ", ExitText(e.report), " age=", age.count(),
                        "ms");
  }
  std::string operator()(const FirstWorkerSucceeded& e) const {
    return Line("first_success", e.stamp);
  }
  std::string operator()(const WorkersSucceeded& e) const { return Line("succeeded", e.stamp); }
  std::string operator()(const VerdictAcked& e) const { return Line("acked", e.stamp); }
  std::string operator()(const HealthChecked& e) const {
    return absl::StrCat(Line("health", e.stamp), " ", HealthText(e.report));
  }
  std::string operator()(const QuestionAsked& e) const {
    return absl::StrCat(Line("question", e.stamp), " id=", e.question.id,
                        e.question.to.value.empty() ? "" : " to=" + e.question.to.value);
  }
  std::string operator()(const AnswerGiven& e) const {
    return absl::StrCat(Line("answer", e.stamp), " id=", e.id, " bytes=", e.body.size());
  }
  std::string operator()(const StopOrdered& e) const {
    const char* how = e.how == StopHow::kAfterStep ? " after_step"
                      : e.how == StopHow::kNow     ? " now"
                                                   : "";
    return absl::StrCat(Line("stop", e.stamp), how, " \"", e.reason, "\"");
  }
  std::string operator()(const SessionBroken& e) const {
    return absl::StrCat("broken session=", e.session.value, e.is_by_peer ? " by_peer" : "");
  }
  std::string operator()(const Recorded&) const { return "recorded"; }
  std::string operator()(const TimePassed&) const { return "time"; }
};

struct ActionRenderer {
  std::string operator()(const TellWaiting& a) const {
    if (!a.deadline.has_value()) return absl::StrCat("waiting \"", a.reason, "\"");
    const auto at =
        std::chrono::duration_cast<std::chrono::milliseconds>(a.deadline->time_since_epoch());
    return absl::StrCat("waiting \"", a.reason, "\" until=", at.count(), "ms");
  }
  std::string operator()(const Assign& a) const {
    const Assignment& to = a.assignment;
    return absl::StrCat("assign ", StampText(to.epoch, to.round), " node_rank=", to.node_rank, "/",
                        to.node_count, " first_rank=", to.first_rank, "/", to.world_size,
                        " role_rank=", to.role_first_rank, "/", to.role_world_size,
                        " master=", to.master_addr, ":", to.master_port,
                        " restart=", to.restart_count, "/", to.max_restarts,
                        to.coordinator_is_member ? "" : " coordinator_elsewhere",
                        to.note.empty() ? "" : absl::StrCat(" \"", to.note, "\""));
  }
  std::string operator()(const Drain& a) const {
    return absl::StrCat("drain ", StampText(a.epoch, a.round), " \"", a.reason, "\"",
                        a.is_cause_wanted ? " cause_wanted" : "");
  }
  std::string operator()(const Conclude& a) const {
    return absl::StrCat("conclude ", StampText(a.epoch, a.round),
                        " exit_code=", a.verdict.exit_code, " \"", a.verdict.reason, "\"",
                        a.verdict.is_kill ? " kill" : "");
  }
  std::string operator()(const Refuse& a) const {
    return absl::StrCat("refuse ", RefusalName(a.kind), " \"", a.message, "\"");
  }
  std::string operator()(const AskNode& a) const { return absl::StrCat("ask id=", a.id); }
  std::string operator()(const GiveAnswers& a) const {
    return absl::StrCat("answers id=", a.id, " nodes=", a.answers.size(),
                        a.is_last ? absl::StrCat(" silent=", a.silent.size()) : " more");
  }
  std::string operator()(const TellToStop& a) const {
    return absl::StrCat(a.is_to_scale_up ? "stop_to_scale_up " : "stop_after_step ",
                        a.is_to_scale_up ? StampText(a.epoch, a.round) + " " : "", "\"", a.reason,
                        "\"");
  }
  std::string operator()(const CloseSession&) const { return "close"; }
  std::string operator()(const Finish&) const { return "finish"; }
  std::string operator()(const Record& a) const {
    return absl::StrCat(
        "record epoch=", a.epoch.value, " restarts=", a.restart_count,
        a.verdict.has_value() ? absl::StrCat(" exit_code=", a.verdict->exit_code) : "");
  }
  std::string operator()(const TellSite& a) const {
    return absl::StrCat("tell_site host=", a.host, " \"", a.reason, "\"");
  }
};

}  // namespace

std::string NodeName(const NodeInfo& node) { return node.host.empty() ? node.id.value : node.host; }

std::string DurationText(Duration duration) {
  if (duration <= Duration::zero()) return "0 s";
  if (duration <= std::chrono::milliseconds(999)) {
    return absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(duration).count(), " ms");
  }
  return absl::StrCat(std::chrono::ceil<std::chrono::seconds>(duration).count(), " s");
}

std::string CauseText(const FailureReport& report) {
  constexpr size_t kMaxSaid = 200;
  std::string text =
      report.message.empty() ? absl::StrCat("exit code ", report.exit_code) : report.message;
  text = EscapeControl(text);
  if (!report.error || report.error->message.empty()) return text;
  const std::string said = report.error->message.substr(0, report.error->message.find('\n'));
  const std::string start = said.substr(0, CharacterStart(said, kMaxSaid));
  return absl::StrCat(text, " (", EscapeControl(start), start == said ? "" : "...", ")");
}

std::string FailureText(const FailureReport& report) {
  if (report.is_hang) return CauseText(report);
  return absl::StrCat("rank ", report.rank, " on node ",
                      report.host.empty() ? report.node.value : report.host,
                      " failed: ", CauseText(report));
}

int64_t SecondsLeft(Duration left) {
  return std::max<int64_t>(0, std::chrono::ceil<std::chrono::seconds>(left).count());
}

std::string JobText(const std::string& run_id) {
  return run_id == "none" ? "this job" : absl::StrCat("the job \"", run_id, "\"");
}

std::string Counted(int count, const std::string& noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string RenderEvent(const Event& event) { return std::visit(EventRenderer{}, event); }

std::string RenderAction(const Action& action) { return std::visit(ActionRenderer{}, action); }

std::optional<SessionId> TargetOf(const Action& action) {
  return std::visit(
      [](const auto& a) -> std::optional<SessionId> {
        if constexpr (requires { a.session; }) return a.session;
        return std::nullopt;
      },
      action);
}

const char* RefusalName(Refusal kind) {
  switch (kind) {
    case Refusal::kFinal:
      return "final";
    case Refusal::kJobOver:
      return "job_over";
    case Refusal::kOtherJob:
      return "other_job";
    case Refusal::kBadNode:
      return "bad_node";
    case Refusal::kRankHeld:
      return "rank_held";
  }
  return "?";
}

}  // namespace ddprun::rendezvous
