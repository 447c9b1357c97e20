// Nodes in, ranks out; and the address at which the others reach a node. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_
#define DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/membership.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// Pointers are borrowed from a Membership and valid as long as it holds the node.
using Members = std::vector<const Member*>;

// Whether host name `a` comes before `b`, numbers compared as numbers: node2 before node10.
// A total order: names that differ only in leading zeros are told apart by their bytes.
bool HostNameLess(std::string_view a, std::string_view b);

// At most `max_nodes` of `ready`: the endpoint's node, then those that were in the last round, then
// by arrival. Who is left over waits as a spare.
Members SelectMembers(Members ready, int max_nodes);

// The members in order of node rank. With `is_static` a node's given rank is its rank; otherwise
// rank 0 is the endpoint's own node, a given --node_rank is honoured where it is free, then ranks
// of the previous round are kept where possible, and the rest fill the holes by given rank, host,
// id. Whatever the order of `members`, the result is the same. REQUIRES: with is_static, given
// ranks are 0..n-1, each once.
Members OrderByRank(const Members& members, bool is_static);

// Where other nodes of `round` reach `node`: --local_addr, else the address that the coordinator
// saw it come from; when that says nothing (loopback, or the coordinator's own process) and a node
// of another host is in the round, the local address on which the coordinator accepted that one.
// All on one host: 127.0.0.1. A loopback address is never given to another host.
std::string AdvertisedAddress(const Member& node, const Members& round);

// 127.0.0.0/8, ::1, their v4-mapped forms, localhost.
bool IsLoopback(std::string_view address);
// "::ffff:10.0.0.1" -> "10.0.0.1"; everything else unchanged.
std::string_view UnwrapMappedAddress(std::string_view address);

// Everything of the assignments that follows from the order: ranks, role ranks, sizes, the master.
// Epoch, round and restart counts are the caller's. REQUIRES: by_rank is not empty.
std::vector<Assignment> AssignRanks(const Members& by_rank, const Policy& policy);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RANK_ASSIGNMENT_H_
