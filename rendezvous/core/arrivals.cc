#include "rendezvous/core/arrivals.h"

#include <algorithm>

namespace ddprun::rendezvous {

const char* ScaleUpName(ScaleUp scale_up) {
  switch (scale_up) {
    case ScaleUp::kNow:
      return "now";
    case ScaleUp::kRestart:
      return "restart";
    case ScaleUp::kGraceful:
      return "graceful";
  }
  return "?";
}

void ArrivalLog::NoteRestart(TimePoint now) {
  restarts_.push_back(now);
  if (restarts_.size() > kMaxRestarts) restarts_.pop_front();
}

TimePoint ArrivalLog::NextRestartAt() const {
  return restarts_.size() < kMaxRestarts ? TimePoint::min() : restarts_.front() + kWindow;
}

void ArrivalLog::NoteGone(const std::string& host, TimePoint came, TimePoint now) {
  if (now - came >= kWindow) return;
  std::erase_if(hosts_, [&](const auto& entry) { return now - entry.second.last >= kWindow; });
  if (!hosts_.contains(host) && hosts_.size() >= kMaxHosts) {
    hosts_.erase(
        std::ranges::min_element(hosts_, {}, [](const auto& entry) { return entry.second.last; }));
  }
  Flapping& flapping = hosts_[host];
  // Agents of one host that came together go together: that is once.
  if (flapping.count == 0 || came >= flapping.last) ++flapping.count;
  flapping.last = now;
}

TimePoint ArrivalLog::PausedUntil(const std::string& host, TimePoint now) const {
  const auto known = hosts_.find(host);
  if (known == hosts_.end() || now - known->second.last >= kWindow) return now;
  Duration pause = kFirstPause;
  for (int i = 1; i < known->second.count && pause < kLongestPause; ++i) pause *= 2;
  return now + std::min(pause, kLongestPause);
}

}  // namespace ddprun::rendezvous
