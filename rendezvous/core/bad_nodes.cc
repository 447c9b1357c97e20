#include "rendezvous/core/bad_nodes.h"

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {

const char* HealthName(Health health) {
  switch (health) {
    case Health::kUnchecked:
      return "unchecked";
    case Health::kHealthy:
      return "healthy";
    case Health::kBad:
      return "bad";
    case Health::kUnknown:
      return "unknown";
  }
  return "?";
}

void BadNodeList::Restore(const BadNodesRecord& record, TimePoint now) {
  count_ = record.count;
  for (const QuarantinedHost& known : record.hosts) {
    hosts_[known.host] = {.why = known.why, .until = now + known.left};
  }
}

BadNodesRecord BadNodeList::ToRecord(TimePoint now) const {
  BadNodesRecord record{.count = count_, .hosts = {}};
  for (const auto& [host, entry] : hosts_) {
    if (entry.until > now) record.hosts.push_back({host, entry.why, entry.until - now});
  }
  return record;
}

void BadNodeList::Add(const std::string& host, const std::string& why, TimePoint until) {
  ++count_;
  if (hosts_.size() >= kMaxHosts && !hosts_.contains(host)) {
    hosts_.erase(
        std::ranges::min_element(hosts_, {}, [](const auto& known) { return known.second.until; }));
  }
  hosts_[host] = {.why = why.substr(0, CharacterStart(why, kMaxWhyBytes)), .until = until};
  std::erase_if(failures_, [&](const auto& failure) { return failure.second == host; });
}

const BadNodeList::Entry* BadNodeList::Find(const std::string& host, TimePoint now) const {
  const auto known = hosts_.find(host);
  return known == hosts_.end() || known->second.until <= now ? nullptr : &known->second;
}

void BadNodeList::Postpone(Duration lost) {
  for (auto& [host, entry] : hosts_) entry.until += lost;
}

int BadNodeList::CountFailure(const std::string& host, Round round, int rounds) {
  DDP_CHECK(rounds >= 1);
  const uint64_t window = static_cast<uint64_t>(rounds);
  failures_.emplace_back(round, host);
  std::erase_if(failures_,
                [&](const auto& failure) { return failure.first.value + window <= round.value; });
  return static_cast<int>(
      std::ranges::count(failures_, host, &std::pair<Round, std::string>::second));
}

}  // namespace ddprun::rendezvous
