// What etcd is asked, and what it answers, as values. [pure]
#ifndef DDPRUN_RENDEZVOUS_ETCD_ETCD_CALLS_H_
#define DDPRUN_RENDEZVOUS_ETCD_ETCD_CALLS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// Whether trying again is of no use.
bool IsFinal(const absl::Status& status);

// A key that is there.
struct EtcdKey {
  std::string value;
  int64_t revision = 0;  // of the whole of etcd, when the key was written
  int64_t lease = 0;     // 0: none
};

// Applied as one where every guarded key was written at its revision, by nobody since (0: where
// there is no such key).
struct EtcdTransaction {
  struct Guard {
    std::string key;
    int64_t revision = 0;
  };
  struct Put {
    std::string key;
    std::string value;
    int64_t lease = 0;
  };
  std::vector<Guard> guards;
  std::vector<Put> puts;
  std::vector<std::string> deletes;
  std::vector<std::string> reads;  // keys, after that or where it was not applied
};

struct EtcdOutcome {
  bool is_applied = false;
  int64_t revision = 0;                      // applied: of what was written
  std::vector<std::optional<EtcdKey>> read;  // in the order of `reads`
};

// The calls, each answered by one EtcdAnswer.
struct GrantLease {
  int64_t lease = 0;
  Duration time{0};
};
struct RenewLease {
  int64_t lease = 0;
};
struct RevokeLease {
  int64_t lease = 0;
};
struct ReadKey {
  std::string key;
};
using EtcdCall = std::variant<GrantLease, RenewLease, RevokeLease, ReadKey, EtcdTransaction>;

// One that failed may have been carried out all the same, or be yet.
struct EtcdAnswer {
  absl::Status status;
  Duration time{0};            // GrantLease, RenewLease: what the lease has; 0: there is none
  std::optional<EtcdKey> key;  // ReadKey
  EtcdOutcome outcome = {};    // EtcdTransaction
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_CALLS_H_
