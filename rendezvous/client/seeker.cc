#include "rendezvous/client/seeker.h"

#include <chrono>
#include <utility>

#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {
namespace {

constexpr Duration kResolveTimeout = std::chrono::seconds(30);

using Outcome = ProbeResult::Outcome;

}  // namespace

SeekResult SeekOnce(const Endpoint& endpoint, const Resolver& resolve, const Interrupt& interrupt) {
  const Resolution names = resolve(endpoint.host, endpoint.port, kResolveTimeout, interrupt);
  SeekResult result;
  switch (names.outcome) {
    case Resolution::Outcome::kInterrupted:
      result.probe.outcome = Outcome::kInterrupted;
      return result;
    case Resolution::Outcome::kNoSuchName:
    case Resolution::Outcome::kTemporary:
      result.is_final = names.outcome == Resolution::Outcome::kNoSuchName;
      result.probe.text = "cannot resolve \"" + endpoint.host + "\": " + names.error;
      return result;
    case Resolution::Outcome::kFound:
      break;
  }
  for (const SocketAddress& address : names.addresses) {
    ProbeResult probe = Probe(address, endpoint.run_id, interrupt);
    // "localhost" is ::1 and 127.0.0.1: an answer on the one is not hidden by a refusal on the
    // other.
    const bool says_less = result.address.size != 0 && (probe.outcome == Outcome::kRefused ||
                                                        probe.outcome == Outcome::kUnreachable);
    const bool is_end = probe.outcome == Outcome::kOurs || probe.outcome == Outcome::kInterrupted;
    if (!says_less) result = SeekResult{std::move(probe), address, false};
    if (is_end) break;
  }
  return result;
}

std::string PlaceText(const Endpoint& endpoint, const SocketAddress& address) {
  const std::string place = EndpointText(endpoint.host, endpoint.port);
  const std::string ip = IpText(address);
  return ip.empty() || ip == endpoint.host ? place : place + " (" + ip + ")";
}

std::string SeekErrorText(const Endpoint& endpoint, const SeekResult& result) {
  const std::string place = PlaceText(endpoint, result.address);
  const std::string& text = result.probe.text;
  switch (result.probe.outcome) {
    case Outcome::kOtherRun:
      return place + " serves the run \"" + text + "\", not \"" + endpoint.run_id +
             "\": use another port, or the same --rdzv_id on all nodes";
    case Outcome::kForeign:
      return place + " is held by another program, not by a ddprun coordinator (it answers \"" +
             text + "\"): use another port";
    case Outcome::kClosed:
    case Outcome::kSilent:
      return place + " is held by another program, not by a ddprun coordinator (" + text +
             "): use another port";
    case Outcome::kOurs:
    case Outcome::kRefused:
    case Outcome::kUnreachable:
    case Outcome::kInterrupted:
      break;
  }
  return "no coordinator at " + place + ": " + text;
}

}  // namespace ddprun::rendezvous
