#include "rendezvous/client/look.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/release.h"
#include "rendezvous/client/greet.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/wire/checked_fields.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::rendezvous {
namespace {

using Outcome = Looked::Outcome;

std::string OtherReleaseText(const Release& release) {
  return absl::StrCat("runs ", CleanText(ReleaseText(release)), ", this node ",
                      ReleaseText(ThisRelease()), ": ", kOneProtocol);
}

// Greets one address, and judges who has answered.
Looked Probe(const SocketAddress& address, const ContactOptions& options,
             const std::shared_ptr<const TlsIdentity>& identity, const Interrupt& interrupt) {
  Greeting greeting = Greet(address, identity, interrupt);
  if (!greeting.hello) return std::move(greeting.trouble);
  const Hello& hello = *greeting.hello;
  // One that takes any run was started for another job than ours, which hosts its own.
  if (!Serves(hello, CleanText(options.policy.run_id)) ||
      (hello.run_id.empty() && !options.more_ports.empty())) {
    return {Outcome::kOtherRun, CleanText(hello.run_id)};
  }
  if (!Understand(hello.release, ThisRelease())) {
    return {.outcome = Outcome::kOtherRelease,
            .text = OtherReleaseText(hello.release),
            .refuses = !hello.release.version.empty()};
  }
  return {.outcome = Outcome::kOurs, .is_apart = hello.is_apart};
}

// A loopback address, or one of this machine's interfaces. Debian maps a machine's own name to
// 127.0.1.1.
bool IsThisMachine(const SocketAddress& address) {
  return IsLoopback(IpText(address)) || !InterfaceOf(address).empty();
}

Looked NotFound(const std::string& name, const Resolution& names) {
  return {.outcome = names.outcome == Resolution::Outcome::kNoSuchName ? Outcome::kNoName
                                                                       : Outcome::kNameLater,
          .text = "cannot resolve \"" + name + "\": " + names.error};
}

}  // namespace

LookedUp LookUp(const std::string& name, const Resolver& resolve) {
  Resolution names = resolve(name, 0);
  if (names.outcome != Resolution::Outcome::kFound) return {NotFound(name, names), {}};
  return {{.outcome = Outcome::kFound}, std::move(names.addresses)};
}

LookResult LookAt(const ContactOptions& options, bool is_port_here, const Resolver& resolve,
                  const std::shared_ptr<const TlsIdentity>& identity, const Interrupt& interrupt) {
  const uint16_t port = options.endpoint_port;
  std::vector<SocketAddress> addresses;
  if (is_port_here) addresses = ResolveName("localhost", port).addresses;
  const Resolution names = resolve(options.endpoint_host, port);
  if (names.outcome != Resolution::Outcome::kFound && addresses.empty()) {
    return {NotFound(options.endpoint_host, names), {}};
  }
  addresses.insert(addresses.end(), names.addresses.begin(), names.addresses.end());
  LookResult result;
  for (const SocketAddress& address : addresses) {
    Looked seen = Probe(address, options, identity, interrupt);
    const bool says_nothing =
        seen.outcome == Outcome::kRefused || seen.outcome == Outcome::kUnreachable;
    // "localhost" is ::1 and 127.0.0.1: an answer on the one is not hidden by a refusal on the
    // other, nor a refusal by silence.
    const bool is_kernels_word =
        seen.outcome == Outcome::kRefused && result.seen.outcome == Outcome::kUnreachable;
    if (result.address.size == 0 || !says_nothing || is_kernels_word) result = {seen, address};
    if (seen.outcome == Outcome::kOurs || interrupt.is_set()) break;
  }
  result.seen.ip = IpText(result.address);
  result.seen.is_this_host =
      std::any_of(names.addresses.begin(), names.addresses.end(), IsThisMachine);
  return result;
}

}  // namespace ddprun::rendezvous
