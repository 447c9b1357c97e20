#include "rendezvous/net/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cstring>

namespace ddprun::rendezvous {
namespace {

Resolution CallGetaddrinfo(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  Resolution result;
  if (error != 0) {
    const bool is_final = error == EAI_NONAME || error == EAI_NODATA || error == EAI_FAMILY;
    result.outcome = is_final ? Resolution::Outcome::kNoSuchName : Resolution::Outcome::kTemporary;
    result.error = gai_strerror(error);
    return result;
  }
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    if (entry->ai_addrlen > sizeof(address.storage)) continue;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    result.addresses.push_back(address);
  }
  freeaddrinfo(list);
  result.outcome =
      result.addresses.empty() ? Resolution::Outcome::kNoSuchName : Resolution::Outcome::kFound;
  if (result.addresses.empty()) result.error = "no address";
  return result;
}

}  // namespace

Resolution ResolveName(const std::string& host, uint16_t port) {
  Resolution literal = CallGetaddrinfo(host, port, AI_NUMERICHOST);
  if (literal.outcome == Resolution::Outcome::kFound) return literal;
  return CallGetaddrinfo(host, port, 0);
}

}  // namespace ddprun::rendezvous
