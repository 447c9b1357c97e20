#include "rendezvous/client/elected.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/etcd/leader_key.h"
#include "rendezvous/etcd/leadership.h"
#include "rendezvous/net/own_addresses.h"

namespace ddprun::rendezvous {
namespace {

// Once round three members.
constexpr Duration kKeyPatience = 3 * EtcdClient::kMemberPatience;

LeaderLook Saw(Looked::Outcome outcome, std::string text) {
  LeaderLook look;
  look.seen = {.outcome = outcome, .text = std::move(text)};
  return look;
}

// Whether the answer came from this machine, in place of one that has the same address.
bool IsOfNamesake(const Looked& seen, const Leader& leader) {
  const bool is_others =
      seen.outcome == Looked::Outcome::kRefused || seen.outcome == Looked::Outcome::kOtherRun ||
      seen.outcome == Looked::Outcome::kForeign || seen.outcome == Looked::Outcome::kDistrusted;
  return is_others && seen.is_this_host && leader.host != HostName();
}

Hosted AnswerOf(const absl::Status& status) {
  using Outcome = Hosted::Outcome;
  const std::string text(status.message());
  if (absl::IsResourceExhausted(status)) return {Outcome::kFailed, text, /*is_local=*/true};
  if (IsFinal(status)) return {Outcome::kFailed, text};
  // Another was quicker, or etcd does not answer just now.
  return {Outcome::kPortTaken, text};
}

}  // namespace

LeaderLook LookForLeader(EtcdClient& etcd, const EtcdOptions& where, const ContactOptions& options,
                         bool is_key_only, const Resolver& resolve,
                         const std::shared_ptr<const TlsIdentity>& identity,
                         const Interrupt& interrupt) {
  const std::string name = LeaderKeyOf(where.prefix, options.policy.run_id);
  const absl::StatusOr<std::optional<EtcdKey>> key = etcd.Get(name, SteadyNow() + kKeyPatience);
  if (!key.ok()) {
    const bool is_final = IsFinal(key.status());
    return Saw(is_final ? Looked::Outcome::kBarred : Looked::Outcome::kUnreachable,
               std::string(key.status().message()));
  }
  if (!*key) return Saw(Looked::Outcome::kVacant, "nobody leads the job");
  const std::optional<Leader> leader = DecodeLeader((*key)->value);
  if (!leader) {
    return Saw(
        Looked::Outcome::kBarred,
        absl::StrCat(
            "the key \"", name, "\" in etcd at ", MembersText(where),
            " holds what ddprun has not written, or a later one has: remove it, or choose another "
            "--rdzv-id or --rdzv-conf etcd_prefix"));
  }
  if (IsLoopback(leader->address) && leader->host != HostName()) {
    return Saw(Looked::Outcome::kBarred,
               absl::StrCat("node ", leader->host, " leads the job at ", leader->address,
                            ", where only its own machine reaches it: give it a --local-addr "
                            "that the others reach"));
  }
  LeaderLook look;
  if (is_key_only) {
    look.seen = {.outcome = Looked::Outcome::kFound, .text = "etcd says that it leads"};
  } else {
    ContactOptions at_leader = options;
    at_leader.endpoint_host = leader->address;
    at_leader.endpoint_port = leader->port;
    static_cast<LookResult&>(look) =
        LookAt(at_leader, /*is_port_here=*/false, resolve, identity, interrupt);
  }
  if (IsOfNamesake(look.seen, *leader)) {
    return Saw(
        Looked::Outcome::kBarred,
        absl::StrCat("node ", leader->host, " leads the job at ", leader->address,
                     ", which is an address of this machine, too: give each node a "
                     "--local-addr that only it has, or start containers with the host's network"));
  }
  look.seen.place = EndpointText(leader->address, leader->port);
  look.revision = (*key)->revision;
  if (look.seen.outcome == Looked::Outcome::kOtherRun) {
    look.seen.text = absl::StrCat("it serves the run \"", look.seen.text, "\"");
  }
  if (look.seen.outcome == Looked::Outcome::kDistrusted) return look;
  if (look.seen.is_own) return look;
  if (look.seen.outcome == Looked::Outcome::kOtherRelease) return look;
  look.seen.text = absl::StrCat(look.seen.place, " of node ", leader->host, ": ", look.seen.text);
  return look;
}

ElectedHost HostAsLeader(Candidacy candidacy, Coordinator::Options start, const Clock& clock) {
  if (start.identity != nullptr) {
    // No other node would believe it.
    if (const absl::Status status = start.identity->Check(); !status.ok()) {
      return {{Hosted::Outcome::kExpired, std::string(status.message())}, nullptr};
    }
  }
  std::string address = candidacy.local_addr;
  if (address.empty()) address = EtcdClient(candidacy.etcd, candidacy.resolver).LocalAddress();
  if (address.empty()) {
    return {AnswerOf(absl::UnavailableError(absl::StrCat(
                "no address of this machine leads to etcd at ", MembersText(candidacy.etcd)))),
            nullptr};
  }
  start.listen = {.host = "", .port = 0, .only = HostsToListenOn(address, candidacy.resolver)};
  start.is_for_own_user = IsLoopback(address);
  if (start.is_for_own_user) start.listen->host = address;
  const auto leadership =
      std::make_shared<Leadership>(Leadership::Options{.etcd = std::move(candidacy.etcd),
                                                       .run_id = std::move(candidacy.run_id),
                                                       .address = address,
                                                       .host = std::move(candidacy.host_name),
                                                       .seen_revision = candidacy.seen_revision,
                                                       .is_leader_gone = candidacy.is_leader_gone,
                                                       .job_time = candidacy.job_time,
                                                       .on_lost = std::move(candidacy.on_lost),
                                                       .on_unwritten = start.on_file_lost,
                                                       .resolver = std::move(candidacy.resolver),
                                                       .first_member = candidacy.first_member});
  start.memory = leadership;
  absl::StatusOr<std::unique_ptr<Coordinator>> started =
      Coordinator::Start(std::move(start), clock);
  if (!started.ok()) return {AnswerOf(started.status()), nullptr};
  const Leader& leader = leadership->leader();
  return {Hosted{.place = EndpointText(leader.address, leader.port)}, *std::move(started)};
}

}  // namespace ddprun::rendezvous
