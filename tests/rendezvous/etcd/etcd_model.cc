#include "tests/rendezvous/etcd/etcd_model.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace ddprun::rendezvous::testing {

EtcdAnswer EtcdModel::Carry(TimePoint now, const EtcdCall& call) {
  EndLeases(now);
  return std::visit([&](const auto& any) { return Do(now, any); }, call);
}

void EtcdModel::RenewAll(TimePoint now) {
  for (auto& [number, lease] : leases_) lease.ends_at = now + lease.time;
}

std::optional<EtcdKey> EtcdModel::Find(const std::string& key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return std::nullopt;
  return found->second;
}

void EtcdModel::EndLeases(TimePoint now) {
  std::vector<int64_t> over;
  for (const auto& [number, lease] : leases_) {
    if (lease.ends_at <= now) over.push_back(number);
  }
  for (const int64_t number : over) End(number);
}

void EtcdModel::End(int64_t lease) {
  leases_.erase(lease);
  if (std::erase_if(keys_, [&](const auto& key) { return key.second.lease == lease; }) > 0) {
    ++revision_;
  }
}

EtcdAnswer EtcdModel::Do(TimePoint now, const GrantLease& call) {
  // As the client does where the lease is there already: an answer was lost.
  Lease& lease = leases_[call.lease];
  lease = {call.time, now + call.time};
  return {.status = absl::OkStatus(), .time = call.time, .key = std::nullopt};
}

EtcdAnswer EtcdModel::Do(TimePoint now, const RenewLease& call) {
  const auto lease = leases_.find(call.lease);
  if (lease == leases_.end()) return {};
  lease->second.ends_at = now + lease->second.time;
  return {.status = absl::OkStatus(), .time = lease->second.time, .key = std::nullopt};
}

EtcdAnswer EtcdModel::Do(TimePoint, const RevokeLease& call) {
  if (leases_.contains(call.lease)) End(call.lease);
  return {};
}

EtcdAnswer EtcdModel::Do(TimePoint, const ReadKey& call) {
  return {.status = absl::OkStatus(), .key = Find(call.key)};
}

EtcdAnswer EtcdModel::Do(TimePoint, const EtcdTransaction& call) {
  EtcdAnswer answer;
  answer.outcome.is_applied =
      std::all_of(call.guards.begin(), call.guards.end(), [&](const EtcdTransaction::Guard& guard) {
        const std::optional<EtcdKey> key = Find(guard.key);
        return (key ? key->revision : 0) == guard.revision;
      });
  if (answer.outcome.is_applied) {
    const bool has_leases =
        std::all_of(call.puts.begin(), call.puts.end(), [&](const EtcdTransaction::Put& put) {
          return put.lease == 0 || leases_.contains(put.lease);
        });
    if (!has_leases) return {.status = absl::AbortedError("requested lease not found")};
    answer.outcome.revision = ++revision_;
    for (const auto& put : call.puts) keys_[put.key] = {put.value, revision_, put.lease};
    for (const std::string& key : call.deletes) keys_.erase(key);
  }
  for (const std::string& key : call.reads) answer.outcome.read.push_back(Find(key));
  return answer;
}

}  // namespace ddprun::rendezvous::testing
