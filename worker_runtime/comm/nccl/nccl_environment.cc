#include "worker_runtime/comm/nccl/nccl_environment.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/unique_fd.h"

namespace ddp::internal {
namespace {

// "10.0.0.1", without the scope of a link-local address.
std::string TextOf(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  if (bytes != nullptr) inet_ntop(address.sa_family, bytes, text, sizeof(text));
  return text;
}

// The interface that has `address` and none of `refused_flags`; empty if there is none.
std::string InterfaceOf(const std::string& address, unsigned refused_flags) {
  const std::string wanted = address.substr(0, address.find('%'));
  if (wanted.empty()) return "";  // as is the text of what is no IP address
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* entry = all; entry != nullptr && found.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & refused_flags) != 0) continue;
    if (TextOf(*entry->ifa_addr) == wanted) found = entry->ifa_name;
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

absl::Status CheckNcclEnvironment() {
  const char* id = std::getenv("NCCL_COMM_ID");
  if (id != nullptr && *id != '\0') {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_COMM_ID is set (\"", id,
                     "\"): NCCL would use a public constant as the group's secret; unset it"));
  }
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  // As NCCL reads it.
  if (blocking != nullptr && *blocking != '\0' && std::strtoll(blocking, nullptr, 0) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL_COMM_BLOCKING is set (\"", blocking,
                     "\"): the library makes blocking calls of NCCL, as PyTorch does; unset it"));
  }
  return absl::OkStatus();
}

void SetNcclEnvironment(const std::string& address, bool spans_hosts, uint16_t ras_port) {
  constexpr int kKeepTheUsers = 0;
  const std::string interface = InterfaceOf(address, spans_hosts ? IFF_LOOPBACK : 0);
  // "=": this very name, not all that begin with it.
  if (!interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", interface).c_str(), kKeepTheUsers);
  }
  if (ras_port != 0) {
    setenv("NCCL_RAS_ADDR", absl::StrCat("127.0.0.1:", ras_port).c_str(), kKeepTheUsers);
  }
  setenv("NCCL_GRAPH_REGISTER", "0", kKeepTheUsers);
}

uint16_t FreeLoopbackPort() {
  const ddprun::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!fd.is_open() || bind(fd.get(), generic, size) != 0) return 0;
  return getsockname(fd.get(), generic, &size) == 0 ? ntohs(address.sin_port) : 0;
}

}  // namespace ddp::internal
