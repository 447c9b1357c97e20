// What is told of a search for the coordinator: of each attempt, of a wait, and of its end.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/client/contact_core.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {

std::string ContactCore::PortHere() const {
  const size_t ports = options_.more_ports.size() + 1;
  return absl::StrCat("port ", Port(), " of this machine, ",
                      ports > 1 ? absl::StrCat("the last of ", ports, " that ") : "which ",
                      options_.endpoint_source, ports > 1 ? " gives," : " names,");
}

std::string ContactCore::TakenText() const {
  return absl::StrCat(PortHere(), " is in use by another program: use another port");
}

std::string ContactCore::AttemptText(const Looked& look) const {
  if (look.outcome == Outcome::kOtherRun) {
    return absl::StrCat(
        hosts_ ? PortHere() : Place(look.ip), " serves the run \"", look.text, "\", not \"",
        options_.policy.run_id, "\": use another port, or",
        hosts_ ? ", for the same job, the same --rdzv-id" : " the same --rdzv-id on all nodes");
  }
  if (look.outcome == Outcome::kOtherRelease) {
    return absl::StrCat("the coordinator at ", Place(look.ip), " ", look.text);
  }
  if (look.outcome == Outcome::kDistrusted) {
    return absl::StrCat(Place(look.ip),
                        " is held by a program that is not of this job: ", look.text);
  }
  if (look.outcome == Outcome::kExpired && !look.is_own && !IsElected()) {
    return absl::StrCat("no contact with the coordinator at ", Place(look.ip), ": ", look.text);
  }
  const bool has_answered = look.outcome == Outcome::kForeign;
  if (!has_answered && look.outcome != Outcome::kClosed && look.outcome != Outcome::kSilent) {
    return look.text;
  }
  if (hosts_ && look.outcome == Outcome::kSilent) {
    const auto limit = std::chrono::duration_cast<std::chrono::seconds>(kSilentLimit).count();
    return absl::StrCat(PortHere(), " is in use and silent for ", limit, " s (", look.text,
                        "): its coordinator is stopped or overloaded, or another program has the "
                        "port");
  }
  if (hosts_ && look.outcome == Outcome::kClosed) {
    return absl::StrCat(
        PortHere(),
        " is in use and closes connections: another program has it, or its "
        "coordinator has too many unknown connections; use another port, or find their sender");
  }
  if (hosts_) return TakenText();
  if (look.outcome == Outcome::kSilent) {
    return absl::StrCat(Place(look.ip), " does not answer (", look.text,
                        "): the coordinator's process is stopped, or another program has the port");
  }
  return absl::StrCat(Place(look.ip), " is held by another program, not by a ddprun coordinator (",
                      has_answered ? absl::StrCat("it answers \"", look.text, "\"") : look.text,
                      "): use another port");
}

std::string ContactCore::WaitText(const std::string& last_try) const {
  return absl::StrCat("waiting for ",
                      IsElected() && leader_.empty() ? "etcd to say whose coordinator leads"
                                                     : "the coordinator at " + MeetingPlace(""),
                      " (last try: ", last_try, ")");
}

std::string ContactCore::Place(const std::string& ip) const {
  if (IsElected()) return leader_.empty() ? options_.endpoint_host : leader_;
  const std::string place = EndpointText(options_.endpoint_host, Port());
  return ip.empty() || ip == options_.endpoint_host ? place : absl::StrCat(place, " (", ip, ")");
}

std::string ContactCore::GiveUpText() const {
  const int64_t limit = SecondsLeft(options_.policy.join_timeout);
  if (!is_name_checked_) return trouble_;
  if (is_ending_) {
    return absl::StrCat(JobText(options_.policy.run_id), " at ", Place(ip_),
                        " was ending, and no next one came within ", limit,
                        " s; last try: ", trouble_);
  }
  if (trouble_.starts_with("etcd at ")) {
    return absl::StrCat(options_.endpoint_host, " did not say whose coordinator leads within ",
                        limit, " s; see that it runs and answers this node; last try: ", trouble_);
  }
  return absl::StrCat("no coordinator answered at ", MeetingPlace(ip_), " within ", limit,
                      " s; last try: ", trouble_.empty() ? kLongLookText : trouble_.c_str());
}

}  // namespace ddprun::rendezvous
