// The keys of a job in etcd: their names and what stands in them. [pure]
//
//   <prefix>/<run id>/leader   who hosts the coordinator, and where; on the leader's lease
//   <prefix>/<run id>/job      what one coordinator leaves to the next; on the job's lease
#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::rendezvous {

std::string LeaderKeyOf(const std::string& prefix, const std::string& run_id);
std::string JobKeyOf(const std::string& prefix, const std::string& run_id);

struct Leader {
  std::string address;  // where the others reach its coordinator: a name or an IP address
  uint16_t port = 0;
  std::string host;  // for people: the machine's name
  friend bool operator==(const Leader&, const Leader&) = default;
};

// "ddprun 1 10.0.0.1:41234 node-a": one line.
std::string EncodeLeader(const Leader& leader);
// nullopt: nobody's key of ours, or a later version's.
std::optional<Leader> DecodeLeader(const std::string& value);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADER_KEY_H_
