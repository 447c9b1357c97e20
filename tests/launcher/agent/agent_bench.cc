#include "tests/launcher/agent/agent_bench.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::launcher {
namespace {

// One word an action, so that a whole step reads as a line.
struct Printer {
  std::string operator()(const JoinRound& a) const {
    using rendezvous::Health;
    return a.health.health == Health::kUnchecked
               ? "join"
               : std::string("join-") + HealthName(a.health.health);
  }
  std::string operator()(const CheckHealth&) const { return "check"; }
  std::string operator()(const StopHealthCheck&) const { return "stop-check"; }
  std::string operator()(const ReportHealth& a) const {
    return std::string("tell-") + HealthName(a.report.health);
  }
  std::string operator()(const PrepareWorkers& a) const {
    return "prepare:" + std::to_string(a.assignment.round.value);
  }
  std::string operator()(const StartWorkers& a) const {
    return "start:" + std::to_string(a.assignment.round.value);
  }
  std::string operator()(const StopWorkers& a) const { return "stop:" + std::to_string(a.signal); }
  std::string operator()(const KillWorkers&) const { return "kill"; }
  std::string operator()(const AskToStop& a) const {
    return (a.is_to_scale_up ? "make-room:" : "ask:") + a.why;
  }
  std::string operator()(const OrderStop& a) const {
    return a.how == rendezvous::StopHow::kAfterStep ? "order-after-step"
           : a.how == rendezvous::StopHow::kNow     ? "order-now"
                                                    : "order";
  }
  std::string operator()(const AnswerStop& a) const {
    return std::string(a.is_after_step ? "answer-after-step" : "answer") +
           (a.trouble.empty() ? "" : "-alone") + (a.ending.empty() ? "" : "-in-vain");
  }
  std::string operator()(const DescribeFailure& a) const {
    return "describe:" + std::to_string(a.end.local_rank);
  }
  std::string operator()(const LookForEnding&) const { return "look"; }
  std::string operator()(const ReportFailure& a) const {
    return "failed:" + std::to_string(a.report.local_rank);
  }
  std::string operator()(const ReportFirstSuccess&) const { return "first-success"; }
  std::string operator()(const ReportSuccess& a) const {
    using rendezvous::StopRead;
    return std::string("success") + (a.if_read == StopRead::kToEnd       ? "-if-to-end"
                                     : a.if_read == StopRead::kToScaleUp ? "-if-to-scale-up"
                                                                         : "");
  }
  std::string operator()(const LeaveJob&) const { return "leave"; }
  std::string operator()(const AckVerdict&) const { return "ack"; }
  std::string operator()(const Say&) const { return "say"; }
  std::string operator()(const PrintReport&) const { return "report"; }
  std::string operator()(const EndJob& a) const { return "end:" + std::to_string(a.exit_code); }
  std::string operator()(const DrainLogs& a) const { return a.is_cut_off ? "cut-off" : "drain"; }
  std::string operator()(const ExitAgent& a) const {
    return (a.is_clean ? "exit:" : "exit-at-once:") + std::to_string(a.exit_code);
  }
};

AgentPolicy With(AgentPolicy policy, int workers) {
  policy.local_world_size = workers;
  return policy;
}

}  // namespace

Bench::Bench(int workers, AgentPolicy policy) : core_(With(std::move(policy), workers)) {}

std::string Bench::Step(const AgentEvent& event) {
  std::string line;
  for (const AgentAction& action : core_.Step(now_, event)) {
    if (!line.empty()) line += " ";
    line += std::visit(Printer{}, action);
  }
  return line;
}

std::string Bench::Pass(Duration duration) {
  const TimePoint end = now_ + duration;
  std::string all;
  while (core_.NextDeadline() && *core_.NextDeadline() <= end) {
    now_ = std::max(now_, *core_.NextDeadline());
    const std::string line = Step(AgentTimePassed{});
    all += (all.empty() ? "" : " ") + (line.empty() ? "!" : line);
    if (line.empty()) break;
  }
  now_ = end;
  return all;
}

std::string Bench::Sleep(Duration duration) {
  now_ += duration;
  return Step(AgentTimePassed{});
}

std::string Bench::Begin(const rendezvous::Assignment& assignment) {
  const std::string line = Step(rendezvous::Assigned{assignment});
  const size_t prepare = line.find("prepare:");
  if (prepare == std::string::npos) return line;
  assignment_ = assignment;
  return line.substr(0, prepare) + Step(WorkersPrepared{assignment});
}

std::string Bench::End(int local_rank, int code, int signal) {
  WorkerEnd end = EndOf(local_rank, code, signal);
  end.at = now_;
  return Told(Step(end), local_rank, code);
}

std::string Bench::Describe(int local_rank, int code, std::optional<int> left_peer) {
  FailureDescribed described{EndOf(local_rank, code), assignment_, {}};
  described.end.at = now_;
  described.report.local_rank = local_rank;
  described.report.left_peer = left_peer;
  return Step(described);
}

std::string Bench::Told(std::string line, int local_rank, int code) {
  const std::string wish = "describe:" + std::to_string(local_rank);
  const size_t at = line.find(wish);
  if (at != std::string::npos) line.replace(at, wish.size(), Describe(local_rank, code));
  return line;
}

std::string Bench::Drain(uint64_t round) { return Step(rendezvous::Drained{Round{round}, ""}); }

std::string Bench::Answer() {
  return Step(LeftoversGone{}) + Step(rendezvous::ContactEnded{}) + Step(ReportWritten{});
}

std::string Bench::Run(uint64_t round) {
  const std::string joined = Step(AgentStarted{});
  return joined + " " + Assign(round);
}

WorkerEnd Bench::EndOf(int local_rank, int code, int signal) {
  return {.local_rank = local_rank,
          .pid = 100,
          .exit_code = code,
          .signal = signal,
          .message = "ended"};
}

rendezvous::Assignment Bench::AssignmentOf(uint64_t round) {
  rendezvous::Assignment assignment;
  assignment.epoch = Epoch{7};
  assignment.round = Round{round};
  return assignment;
}

}  // namespace ddprun::launcher
