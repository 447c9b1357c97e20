#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "rendezvous/server/service.h"

namespace ddprun::rendezvous {
namespace {

std::string DecodePercent(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
    i += 2;
  }
  return out;
}

}  // namespace

std::string PeerFromGrpc(const std::string& grpc_peer) {
  if (!absl::StartsWith(grpc_peer, "ipv4:") && !absl::StartsWith(grpc_peer, "ipv6:")) return "";
  std::string peer = DecodePercent(grpc_peer.substr(5));
  const std::string mapped = "[::ffff:";
  if (absl::StartsWith(peer, mapped) && absl::StrContains(peer, ".")) {
    const size_t end = peer.find(']');
    if (end == std::string::npos) return "";
    peer = peer.substr(mapped.size(), end - mapped.size()) + peer.substr(end + 1);
  }
  return peer;
}

std::string IpOfPeer(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  if (colon == std::string::npos) return "";
  const std::string host = peer.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') return host.substr(1, host.size() - 2);
  return host;
}

void AcceptedAddresses::Add(const std::string& peer, const std::string& local_ip) {
  const std::lock_guard lock(mutex_);
  if (!local_by_peer_.insert_or_assign(peer, local_ip).second) return;
  order_.push_back(peer);
  if (order_.size() <= kMaxEntries) return;
  local_by_peer_.erase(order_.front());
  order_.pop_front();
}

std::string AcceptedAddresses::Find(const std::string& peer) const {
  const std::lock_guard lock(mutex_);
  const auto found = local_by_peer_.find(peer);
  return found == local_by_peer_.end() ? "" : found->second;
}

}  // namespace ddprun::rendezvous
