#include "tests/sim/trace.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/text.h"
#include "tests/sim/checker.h"

namespace ddprun::sim {
namespace {

std::string RenderHeard(const rendezvous::RendezvousEvent& event) {
  struct Visitor {
    std::string operator()(const rendezvous::Waiting& e) const { return "waiting: " + e.reason; }
    std::string operator()(const rendezvous::Assigned& e) const {
      return absl::StrCat("assigned ", e.assignment.epoch.value, ".", e.assignment.round.value,
                          " ranks ", e.assignment.first_rank, "+ of ", e.assignment.world_size);
    }
    std::string operator()(const rendezvous::Drained& e) const {
      return absl::StrCat("drained ", e.round.value, ": ", e.reason);
    }
    std::string operator()(const rendezvous::Concluded& e) const {
      return absl::StrCat("concluded ", e.verdict.exit_code, ": ", e.verdict.reason);
    }
    std::string operator()(const rendezvous::RendezvousFailed& e) const {
      return "failed: " + e.message;
    }
    std::string operator()(const rendezvous::ContactMade&) const { return "contact made"; }
    std::string operator()(const rendezvous::ContactLost& e) const {
      return absl::StrCat("contact lost", e.is_gone ? ", gone: " : ": ", e.reason);
    }
    std::string operator()(const rendezvous::ContactRestored&) const { return "contact restored"; }
    std::string operator()(const rendezvous::Asked&) const { return "asked"; }
    std::string operator()(const rendezvous::Answered&) const { return "answered"; }
    std::string operator()(const rendezvous::StopRequested& e) const {
      return "stop requested: " + e.reason;
    }
    std::string operator()(const rendezvous::ContactEnded&) const { return "contact ended"; }
  };
  return std::visit(Visitor{}, event);
}

std::string RenderDid(const launcher::AgentAction& action) {
  if (const auto* say = std::get_if<launcher::Say>(&action)) return "says: " + say->text;
  if (const auto* exit = std::get_if<launcher::ExitAgent>(&action)) {
    return absl::StrCat("exits ", exit->exit_code);
  }
  // By the variant's index.
  constexpr const char* kNames[] = {"join",
                                    "check health",
                                    "stop the health check",
                                    "report health",
                                    "prepare workers",
                                    "start workers",
                                    "stop workers",
                                    "kill workers",
                                    "ask to stop",
                                    "order the stop",
                                    "answer the stop",
                                    "describe failure",
                                    "look for ending workers",
                                    "report failure",
                                    "report first success",
                                    "report success",
                                    "leave",
                                    "acknowledge",
                                    "say",
                                    "print report",
                                    "end what is left",
                                    "drain logs",
                                    "exit"};
  static_assert(std::size(kNames) == std::variant_size_v<launcher::AgentAction>);
  return kNames[action.index()];
}

const char* CauseName(EndCause cause) {
  switch (cause) {
    case EndCause::kSuccess:
      return "done";
    case EndCause::kScaleUp:
      return "to make room";
    case EndCause::kOwn:
      return "by itself";
    case EndCause::kFollowing:
      return "after a peer";
    case EndCause::kStopped:
      return "stopped";
  }
  return "";
}

}  // namespace

std::string NameOf(AgentKey key) {
  return key.life == 0 ? absl::StrCat("n", key.node) : absl::StrCat("n", key.node, ".", key.life);
}

AgentKey KeyOf(const NodeId& id) {
  AgentKey key;
  const char* text = id.value.c_str() + 1;
  char* end = nullptr;
  key.node = static_cast<int>(std::strtol(text, &end, 10));
  if (*end == '.') key.life = static_cast<int>(std::strtol(end + 1, nullptr, 10));
  return key;
}

RoundKey KeyOf(const rendezvous::Assignment& assignment) {
  return {assignment.instance, assignment.epoch, assignment.round};
}

void Trace::Hash(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ULL; }

void Trace::Print(const std::string& line) const {
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(timeline_.now().time_since_epoch())
          .count();
  std::printf("%10.6f  %s\n", static_cast<double>(us) / 1e6, line.c_str());
}

void Trace::Faulted(const Fault& fault) {
  Hash(100 + static_cast<uint64_t>(fault.kind));
  if (is_loud_) Print("* " + Describe(fault));
  checker_.OnFault(fault);
}

void Trace::CoordinatorStarted(int life, int host, Epoch epoch, bool has_memory) {
  Hash(epoch.value);
  if (is_loud_) {
    Print(absl::StrCat("coordinator ", life, " starts, epoch ", epoch.value,
                       has_memory ? "" : ", remembers nothing"));
  }
  checker_.OnCoordinatorStarted(life, host, has_memory);
}

void Trace::CoordinatorStepped(int life, TimePoint local,
                               const rendezvous::RendezvousMachine& machine,
                               const rendezvous::Event& event,
                               const std::vector<rendezvous::Action>& actions) {
  Hash(static_cast<uint64_t>(timeline_.now().time_since_epoch().count()));
  Hash(event.index() << 8 | actions.size());
  for (const rendezvous::Action& action : actions) Hash(action.index());
  if (is_loud_) {
    const bool is_routine = std::holds_alternative<rendezvous::HeartbeatReceived>(event) ||
                            std::holds_alternative<rendezvous::TimePassed>(event);
    if (!is_routine || !actions.empty()) {
      Print(absl::StrCat("coordinator ", life, " hears ", rendezvous::RenderEvent(event)));
    }
    for (const rendezvous::Action& action : actions) {
      const std::optional<SessionId> target = rendezvous::TargetOf(action);
      Print(absl::StrCat("  says session=", target ? target->value : 0, " ",
                         rendezvous::RenderAction(action)));
    }
  }
  checker_.OnStep(life, local, machine, event, actions);
}

void Trace::Broken(const std::string& what) { checker_.Broken(what); }

void Trace::VerdictDurable(int life) { checker_.OnVerdictDurable(life); }

void Trace::RecordKept(int life, const rendezvous::Record& record) {
  Hash(300 + record.verdict.has_value());
  if (is_loud_) {
    Print(absl::StrCat("etcd keeps of coordinator ", life, " restart ", record.restart_count,
                       record.verdict ? " and the verdict" : ""));
  }
  checker_.OnRecordKept(life, record);
}

void Trace::PlaceTaken(int life, AgentKey by, bool has_record, bool is_stolen) {
  Hash(310 + has_record);
  if (is_loud_) Print(absl::StrCat("etcd names coordinator ", life, " in ", NameOf(by)));
  checker_.OnPlaceTaken(by, has_record, is_stolen);
}

void Trace::AgentStarted(AgentKey key) {
  Hash(200);
  if (is_loud_) Print(NameOf(key) + " starts");
  checker_.OnAgentStarted(key);
}

void Trace::AgentKilled(AgentKey key) {
  Hash(201);
  checker_.OnAgentKilled(key);
}

void Trace::AgentHeard(AgentKey key, const rendezvous::RendezvousEvent& event) {
  Hash(static_cast<uint64_t>(timeline_.now().time_since_epoch().count()));
  Hash(static_cast<uint64_t>(key.node) << 16 | static_cast<uint64_t>(key.life) << 8 |
       event.index());
  if (is_loud_) Print(absl::StrCat(NameOf(key), " hears ", RenderHeard(event)));
  checker_.OnAgentHeard(key, event);
  if (heard_) heard_(event);
}

void Trace::AgentDid(AgentKey key, const launcher::AgentAction& action) {
  Hash(static_cast<uint64_t>(key.node) << 16 | static_cast<uint64_t>(key.life) << 8 |
       action.index());
  if (is_loud_) Print(absl::StrCat(NameOf(key), " does ", RenderDid(action)));
  checker_.OnAgentDid(key, action);
}

void Trace::WorkerStarted(AgentKey key, const rendezvous::Assignment& assignment, int local_rank) {
  checker_.OnWorkerStarted(key, assignment, local_rank);
}

void Trace::WorkerEnded(AgentKey key, RoundKey round, int rank, int exit_code, EndCause cause) {
  Hash(static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(exit_code));
  if (is_loud_) {
    Print(absl::StrCat(NameOf(key), " rank ", rank, " ends with ", exit_code, ", ",
                       CauseName(cause)));
  }
  checker_.OnWorkerEnded(key, round, rank, exit_code, cause);
}

}  // namespace ddprun::sim
