// Nodes that a job does not want any more: by which rules, and which hosts it knows. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_BAD_NODES_H_
#define DDPRUN_RENDEZVOUS_CORE_BAD_NODES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// What a node's own health check said of it last.
enum class Health {
  kUnchecked,  // nobody asked for a check
  kHealthy,
  kBad,
  kUnknown,  // the check came to no result
};
struct HealthReport {
  Health health = Health::kUnchecked;
  std::string line;  // the last one that the check wrote, or why there is no result
  friend bool operator==(const HealthReport&, const HealthReport&) = default;
};
inline constexpr size_t kMaxHealthLineBytes = 300;
const char* HealthName(Health health);

// All are off unless the user asks for them. Equal on all nodes of a job.
struct BadNodeRules {
  bool has_check = false;  // each node is checked before each round
  Duration check_timeout{0};
  bool refuses_unknown = false;  // kUnknown counts as kBad
  // A host is bad whose worker failed first in more than so many of the last `failure_rounds`
  // rounds; empty: whatever fails there.
  std::optional<int> max_failures = {};
  int failure_rounds = 0;
  Duration quarantine{0};  // how long no agent of a bad host is let in
  int max_bad_nodes = 0;   // one more ends the job
  friend bool operator==(const BadNodeRules&, const BadNodeRules&) = default;
};

// As a job's record keeps one: without a clock.
struct QuarantinedHost {
  std::string host;
  std::string why;  // "node b is bad: GPU 3 has fallen off the bus"
  Duration left{0};
  friend bool operator==(const QuarantinedHost&, const QuarantinedHost&) = default;
};
struct BadNodesRecord {
  int count = 0;  // of bad nodes so far
  std::vector<QuarantinedHost> hosts;
  friend bool operator==(const BadNodesRecord&, const BadNodesRecord&) = default;
};

// Which hosts are in quarantine, and where workers have failed first.
class BadNodeList {
 public:
  // As much as a record has room for; the host that is let in next makes room.
  static constexpr size_t kMaxHosts = 128;
  static constexpr size_t kMaxWhyBytes = 600;

  // Goes on from a record.
  void Restore(const BadNodesRecord& record, TimePoint now);
  BadNodesRecord ToRecord(TimePoint now) const;

  // REQUIRES: the host is not in quarantine.
  void Add(const std::string& host, const std::string& why, TimePoint until);
  // Why no agent of the host is let in, and until when; null: it is.
  struct Entry {
    std::string why;
    TimePoint until;
  };
  const Entry* Find(const std::string& host, TimePoint now) const;
  // Of all that were added, also of those whose time is over.
  int count() const { return count_; }
  const std::map<std::string, Entry>& hosts() const { return hosts_; }
  // The coordinator did not run for so long.
  void Postpone(Duration lost);

  // A worker of the host failed first in `round`. In how many of the last `rounds` one did.
  int CountFailure(const std::string& host, Round round, int rounds);

 private:
  int count_ = 0;
  std::map<std::string, Entry> hosts_;
  std::vector<std::pair<Round, std::string>> failures_;  // in order of their rounds
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_BAD_NODES_H_
