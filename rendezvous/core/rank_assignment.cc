#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "rendezvous/base/check.h"
#include "rendezvous/core/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool IsNumber(std::string_view run) { return kDigits.find(run.front()) != std::string_view::npos; }

// Cuts the leading run of digits, or of other characters, off `text`.
std::string_view TakeRun(std::string_view& text) {
  const size_t length =
      IsNumber(text) ? text.find_first_not_of(kDigits) : text.find_first_of(kDigits);
  const std::string_view run = text.substr(0, length);
  text.remove_prefix(run.size());
  return run;
}

// <0, 0, >0 as numbers of any length.
int CompareNumbers(std::string_view a, std::string_view b) {
  a.remove_prefix(std::min(a.find_first_not_of('0'), a.size()));
  b.remove_prefix(std::min(b.find_first_not_of('0'), b.size()));
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

bool HasGivenRank(const Member* member) { return member->info.node_rank >= 0; }

bool ByGivenRankThenHost(const Member* a, const Member* b) {
  if (HasGivenRank(a) != HasGivenRank(b)) return HasGivenRank(a);
  if (a->info.node_rank != b->info.node_rank) return a->info.node_rank < b->info.node_rank;
  if (a->info.host != b->info.host) return HostNameLess(a->info.host, b->info.host);
  return a->info.id < b->info.id;
}

// Puts each of `waiting` into the slot it wants if that exists and is free; keeps the others.
template <typename Wanted>
void Claim(Members& waiting, Members& slots, Wanted wanted) {
  std::erase_if(waiting, [&](const Member* member) {
    const int slot = wanted(member);
    if (slot < 0 || slot >= static_cast<int>(slots.size()) || slots[slot] != nullptr) return false;
    slots[slot] = member;
    return true;
  });
}

bool IsElsewhere(const Member& member) {
  return !member.source_addr.empty() && !IsLoopback(member.source_addr);
}

}  // namespace

bool HostNameLess(std::string_view a, std::string_view b) {
  std::string_view rest_a = a;
  std::string_view rest_b = b;
  while (!rest_a.empty() && !rest_b.empty()) {
    const std::string_view run_a = TakeRun(rest_a);
    const std::string_view run_b = TakeRun(rest_b);
    const bool are_numbers = IsNumber(run_a) && IsNumber(run_b);
    const int order = are_numbers ? CompareNumbers(run_a, run_b) : run_a.compare(run_b);
    if (order != 0) return order < 0;
  }
  if (rest_a.empty() != rest_b.empty()) return rest_a.empty();
  return a < b;
}

Members SelectMembers(Members ready, int max_nodes) {
  std::ranges::sort(ready, {}, [](const Member* member) {
    const bool is_new = member->previous_rank < 0;
    return std::tuple(!member->info.is_endpoint_node, is_new, member->arrival);
  });
  if (ready.size() > static_cast<size_t>(max_nodes)) ready.resize(max_nodes);
  return ready;
}

Members OrderByRank(const Members& members, bool is_static) {
  Members waiting = members;
  std::sort(waiting.begin(), waiting.end(), ByGivenRankThenHost);
  Members slots(members.size(), nullptr);
  if (!is_static) {
    Claim(waiting, slots,
          [](const Member* member) { return member->info.is_endpoint_node ? 0 : -1; });
  }
  Claim(waiting, slots, [](const Member* member) { return member->info.node_rank; });
  DDP_CHECK(!is_static || waiting.empty());
  Claim(waiting, slots,
        [](const Member* member) { return HasGivenRank(member) ? -1 : member->previous_rank; });
  auto next = waiting.begin();
  for (const Member*& slot : slots) {
    if (slot == nullptr) slot = *next++;
  }
  return slots;
}

bool IsLoopback(std::string_view address) {
  address = UnwrapMappedAddress(address);
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

std::string_view UnwrapMappedAddress(std::string_view address) {
  constexpr std::string_view kPrefix = "::ffff:";
  if (address.starts_with(kPrefix) && address.find('.') != std::string_view::npos) {
    address.remove_prefix(kPrefix.size());
  }
  return address;
}

std::string AdvertisedAddress(const Member& node, const Members& round) {
  const auto is_remote = [&node](const Member* other) {
    return other != &node && IsElsewhere(*other);
  };
  const bool has_remote = std::ranges::any_of(round, is_remote);
  const std::string& given = node.info.advertised_addr;
  if (!given.empty() && (!has_remote || !IsLoopback(given))) return given;
  if (IsElsewhere(node)) return std::string(UnwrapMappedAddress(node.source_addr));
  if (!has_remote) return "127.0.0.1";
  for (const Member* other : round) {
    const std::string& accepted = other->accepted_addr;
    if (!is_remote(other) || accepted.empty() || IsLoopback(accepted)) continue;
    return std::string(UnwrapMappedAddress(accepted));
  }
  return node.info.host;  // The name is the last thing left that can mean something elsewhere.
}

std::vector<Assignment> AssignRanks(const Members& by_rank, const Policy& policy) {
  DDP_CHECK(!by_rank.empty());
  Assignment shared;
  shared.node_count = static_cast<int>(by_rank.size());
  shared.world_size = 0;
  shared.max_restarts = policy.max_restarts;
  shared.coordinator_is_member = false;
  std::map<std::string, int> role_sizes;
  for (size_t node_rank = 0; node_rank < by_rank.size(); ++node_rank) {
    const Member* member = by_rank[node_rank];
    shared.world_size += member->info.local_world_size;
    if (member->info.is_endpoint_node) shared.coordinator_is_member = true;
    if (member->info.is_endpoint_node || member->source_addr.empty()) {
      const bool is_alone = std::count_if(by_rank.begin(), by_rank.end(), [&](const Member* other) {
                              return NodeName(other->info) == NodeName(member->info);
                            }) == 1;
      shared.coordinator_node = is_alone ? NodeName(member->info)
                                         : NumberedName(member->info, static_cast<int>(node_rank));
    }
    role_sizes[member->info.role] += member->info.local_world_size;
  }
  shared.master_addr =
      policy.is_static ? policy.static_master_addr : AdvertisedAddress(*by_rank.front(), by_rank);
  shared.master_port =
      policy.is_static ? policy.static_master_port : by_rank.front()->info.store_port;

  std::vector<Assignment> assignments;
  assignments.reserve(by_rank.size());
  std::map<std::string, int> role_next;
  int next_rank = 0;
  for (const Member* member : by_rank) {
    Assignment assignment = shared;
    assignment.node_rank = static_cast<int>(assignments.size());
    assignment.first_rank = next_rank;
    assignment.role_first_rank = role_next[member->info.role];
    assignment.role_world_size = role_sizes[member->info.role];
    next_rank += member->info.local_world_size;
    role_next[member->info.role] += member->info.local_world_size;
    assignments.push_back(std::move(assignment));
  }
  return assignments;
}

}  // namespace ddprun::rendezvous
