#include "launcher/status/oom_verdict.h"

#include <algorithm>
#include <ctime>

#include "launcher/status/bytes_text.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

int64_t CountedKills(const OomEvidence& evidence) {
  if (!evidence.now.oom_kills || !evidence.oom_kills_before) return 0;
  return std::max<int64_t>(*evidence.now.oom_kills - *evidence.oom_kills_before, 0);
}

// The newest of this pid.
const OomKill* FindKill(const std::vector<OomKill>& log, int pid) {
  const auto found = std::find_if(log.rbegin(), log.rend(),
                                  [pid](const OomKill& kill) { return kill.pid == pid; });
  return found == log.rend() ? nullptr : &*found;
}

}  // namespace

std::optional<std::string> OomVerdict(const OomEvidence& evidence, int pid) {
  const OomKill* kill = FindKill(evidence.log, pid);
  const int64_t counted = CountedKills(evidence);
  // Without a line of its own it may be meant by the count, unless the log tells of as many others.
  if (kill == nullptr && counted <= static_cast<int64_t>(evidence.log.size())) return std::nullopt;
  const MemoryFacts& now = evidence.now;
  const auto scope = kill == nullptr ? OomKill::Scope::kUnknown : kill->scope;
  std::string text = "killed by the OOM killer";
  if (scope == OomKill::Scope::kMachine || (scope == OomKill::Scope::kUnknown && !now.is_cgroup)) {
    text += ", out of memory on this machine";
    if (now.limit && !now.is_cgroup) text += " (" + BytesText(*now.limit) + ")";
  } else if (now.is_cgroup) {
    if (now.limit) text += ", limit " + BytesText(*now.limit);
    if (now.peak) text += ", peak " + BytesText(*now.peak);
  } else {
    text += " of its cgroup";  // whose limit is not shown here
  }
  if (kill != nullptr && kill->anonymous_bytes) {
    text += ", it held " + BytesText(*kill->anonymous_bytes);
  }
  return text;
}

OomBaseline ReadOomBaseline(const MemoryPlaces& places) {
  return {
      .places = places, .oom_kills = ReadMemoryFacts(places).oom_kills, .log = KernelLog::Open()};
}

std::optional<std::string> ExplainKill(const OomBaseline& baseline, int pid, Duration limit) {
  const TimePoint until = SteadyNow() + limit;
  OomEvidence evidence{.now = ReadMemoryFacts(baseline.places),
                       .oom_kills_before = baseline.oom_kills};
  const bool is_counted = evidence.now.oom_kills && evidence.oom_kills_before;
  while (baseline.log != nullptr) {
    evidence.log = baseline.log->Kills(until);
    // The kernel has counted nobody: no line will follow.
    if (is_counted && CountedKills(evidence) == 0) break;
    if (FindKill(evidence.log, pid) != nullptr || SteadyNow() >= until) break;
    const timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
    nanosleep(&pause, nullptr);
  }
  return OomVerdict(evidence, pid);
}

}  // namespace ddprun::launcher
