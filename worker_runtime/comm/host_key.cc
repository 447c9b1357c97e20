#include "worker_runtime/comm/host_key.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/unique_fd.h"

namespace ddp::internal {
namespace {

std::string ReadBootId() {
  ddprun::UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[36];
  if (!file.is_open() || read(file.get(), text, sizeof text) != sizeof text) return "";
  return std::string(text, sizeof text);
}

}  // namespace

std::string HostKey() {
  const char* given = std::getenv("DDPRUN_HOST_ID");
  if (given != nullptr && *given != '\0') {
    std::string key = given;
    for (char& c : key) {
      if (c == '|') c = '_';  // separates fields in the store
    }
    return key;
  }
  struct stat network_namespace {};
  // Without /proc the boot and the namespace are unknown: a key of our own keeps this rank apart.
  if (stat("/proc/self/ns/net", &network_namespace) != 0 || ReadBootId().empty()) {
    return absl::StrCat("pid-", getpid());
  }
  return absl::StrCat(ReadBootId(), "-", network_namespace.st_ino);
}

std::string LocalAddressToward(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (addrinfo* at = found; at != nullptr; at = at->ai_next) {
    // Connecting a datagram socket sends nothing: the kernel only chooses the route.
    ddprun::UniqueFd socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    char text[INET6_ADDRSTRLEN];
    if (socket.is_open() && connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return text;
    }
  }
  return "";
}

}  // namespace ddp::internal
