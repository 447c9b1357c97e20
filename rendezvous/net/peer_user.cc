#include "rendezvous/net/peer_user.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {
namespace {

// The kernel answers within the call; no thread is to hang if it does not.
constexpr timeval kPatience = {.tv_sec = 1, .tv_usec = 0};

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 query;
};

bool Fill(const SocketAddress& address, __be16& port, __be32 (&ip)[4]) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &address.storage, sizeof(in));
    port = in.sin_port;
    ip[0] = in.sin_addr.s_addr;
    return true;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  sockaddr_in6 in;
  std::memcpy(&in, &address.storage, sizeof(in));
  port = in.sin6_port;
  std::memcpy(ip, &in.sin6_addr, sizeof(ip));
  return true;
}

// A row of a table of /proc/net: in which one, and how its ends begin it.
struct Row {
  size_t table;  // that of IPv4, or of IPv6
  std::string ends;
};
constexpr size_t kTable4 = 0, kTable6 = 1;

// "0100007F:1F90": the address's words as numbers of this machine, and the port. Empty: an IPv6
// address is in no table of IPv4.
std::string EndText(const SocketAddress& address, size_t table) {
  __be16 port = 0;
  __be32 ip[4] = {};
  if (!Fill(address, port, ip)) return "";
  const bool is_ipv4 = address.storage.ss_family == AF_INET;
  const bool is_mapped = !is_ipv4 && ip[0] == 0 && ip[1] == 0 && ip[2] == htonl(0xFFFF);
  if (table == kTable4 && !is_ipv4 && !is_mapped) return "";
  const __be32 ipv4 = is_ipv4 ? ip[0] : ip[3];
  const std::string end = absl::StrFormat(":%04X", ntohs(port));
  if (table == kTable4) return absl::StrFormat("%08X", ipv4) + end;
  if (is_ipv4) return absl::StrFormat("%08X%08X%08X%08X", 0, 0, htonl(0xFFFF), ipv4) + end;
  return absl::StrFormat("%08X%08X%08X%08X", ip[0], ip[1], ip[2], ip[3]) + end;
}

void AddRows(const SocketAddress& here, const SocketAddress& there, std::vector<Row>& rows) {
  for (const size_t table : {kTable4, kTable6}) {
    const std::string mine = EndText(here, table), other = EndText(there, table);
    if (!mine.empty() && !other.empty()) rows.push_back({table, absl::StrCat(mine, " ", other)});
  }
}

// Who listens is there with an end that is all zeros. What comes to an address goes to whoever
// listens at just that, or else at all of them.
void AddListenerRows(const SocketAddress& here, std::vector<Row>& rows) {
  std::vector<std::string> places = {IpText(here), "::"};
  if (places[0].find(':') == std::string::npos) places.insert(places.begin() + 1, "0.0.0.0");
  for (const std::string& place : places) {
    for (const char* nobody : {"0.0.0.0", "::"}) {
      AddRows(*ParseIp(place, PortOf(here)), *ParseIp(nobody, 0), rows);
    }
  }
}

bool IsOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

PeerUsers::PeerUsers(SourcesForTest sources) : sources_(std::move(sources)) { DoesKernelTell(); }

std::optional<PeerUsers::Socket> PeerUsers::Find(const SocketAddress& here,
                                                 const SocketAddress& there) {
  is_short_ = false;
  std::optional<Socket> found;
  // One that has told of a socket is believed when it tells of none: where sock_diag works nobody
  // has us look through all sockets of the machine.
  if (source_ != Source::kTables && sources_.has_sock_diag) {
    found = AskSockDiag(here, there);
    if (found) source_ = Source::kSockDiag;
  }
  if (!found && source_ != Source::kSockDiag) {
    found = LookInTables(here, there);
    if (found) source_ = Source::kTables;
  }
  return found;
}

std::optional<PeerUsers::Socket> PeerUsers::AskSockDiag(const SocketAddress& here,
                                                        const SocketAddress& there) {
  if (!link_.is_open()) {
    link_.Reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    if (!link_.is_open()) {
      is_short_ |= IsOfDescriptors(errno);
      return std::nullopt;
    }
    setsockopt(link_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  }
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  inet_diag_sockid& ends = request.query.id;
  if (!Fill(here, ends.idiag_sport, ends.idiag_src)) return std::nullopt;
  if (!Fill(there, ends.idiag_dport, ends.idiag_dst)) return std::nullopt;
  request.query.sdiag_family = static_cast<__u8>(here.storage.ss_family);
  request.query.sdiag_protocol = IPPROTO_TCP;
  request.query.idiag_states = ~0U;
  ends.idiag_cookie[0] = ends.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  request.header.nlmsg_seq = ++number_;
  if (send(link_.get(), &request, sizeof(request), 0) != sizeof(request)) return std::nullopt;
  alignas(nlmsghdr) char reply[512];
  nlmsghdr header{};
  inet_diag_msg found;
  // An answer that came too late for an earlier question is passed over.
  while (header.nlmsg_seq != number_) {
    const ssize_t size = recv(link_.get(), reply, sizeof(reply), 0);
    if (size < static_cast<ssize_t>(sizeof(header))) return std::nullopt;
    std::memcpy(&header, reply, sizeof(header));
  }
  const bool is_answer =
      header.nlmsg_type == SOCK_DIAG_BY_FAMILY && header.nlmsg_len >= NLMSG_LENGTH(sizeof(found));
  if (!is_answer) return std::nullopt;
  std::memcpy(&found, reply + NLMSG_HDRLEN, sizeof(found));
  if (found.idiag_inode == 0) return std::nullopt;
  return Socket{.state = found.idiag_state, .user = found.idiag_uid};
}

// Empty: it cannot be read.
std::string PeerUsers::ReadTable(size_t table) {
  UniqueFd& file = tables_[table];
  if (!file.is_open()) {
    const std::string name = sources_.tables + (table == kTable4 ? "/tcp" : "/tcp6");
    file.Reset(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) is_short_ |= IsOfDescriptors(errno);
  }
  std::string text;
  char bytes[4096];
  if (!file.is_open() || lseek(file.get(), 0, SEEK_SET) != 0) return text;
  for (;;) {
    const ssize_t size = read(file.get(), bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(bytes, static_cast<size_t>(size));
  }
}

std::optional<PeerUsers::Socket> PeerUsers::LookInTables(const SocketAddress& here,
                                                         const SocketAddress& there) {
  if (here.size == 0 || there.size == 0) return std::nullopt;
  std::vector<Row> rows;
  if (PortOf(there) == 0) {
    AddListenerRows(here, rows);
  } else {
    AddRows(here, there, rows);
  }
  // The kernel writes a table piece by piece, and may leave out a row where others end meanwhile.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::array<std::string, 2> tables = {ReadTable(kTable4), ReadTable(kTable6)};
    for (const Row& row : rows) {
      const std::string& table = tables[row.table];
      const size_t at = table.find(absl::StrCat(" ", row.ends, " "));
      if (at == std::string::npos) continue;
      // Both ends, state, queues, timer, retransmissions, user, timeout, inode.
      const std::vector<std::string> fields =
          absl::StrSplit(table.substr(at, table.find('\n', at) - at), ' ', absl::SkipEmpty());
      uint32_t state = 0, user = 0;
      const bool is_told = fields.size() > 8 && absl::SimpleHexAtoi(fields[2], &state) &&
                           absl::SimpleAtoi(fields[6], &user) && fields[8] != "0";
      if (!is_told) return std::nullopt;
      return Socket{.state = static_cast<uint8_t>(state), .user = user};
    }
  }
  return std::nullopt;
}

std::optional<uid_t> PeerUsers::UserOf(int fd) {
  // As the other end sees it.
  const std::optional<Socket> found = Find(PeerAddress(fd), LocalAddress(fd));
  if (!found || found->state != TCP_ESTABLISHED) return std::nullopt;
  return found->user;
}

std::optional<uid_t> PeerUsers::ListenerAt(const SocketAddress& address) {
  // No connection leads to port 0.
  const std::optional<SocketAddress> nobody = ParseIp(IpText(address), 0);
  const std::optional<Socket> found = nobody ? Find(address, *nobody) : std::nullopt;
  if (!found || found->state != TCP_LISTEN) return std::nullopt;
  return found->user;
}

bool PeerUsers::IsOfOthers(int fd) {
  const std::optional<uid_t> user = UserOf(fd);
  if (!user) return DoesKernelTell();
  return *user != geteuid() && *user != 0;
}

bool PeerUsers::DoesKernelTell() {
  if (source_ != Source::kNone) return true;
  const UniqueFd door(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(door.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return true;
  if (listen(door.get(), 1) != 0) return true;
  return ListenerAt(LocalAddress(door.get())).has_value() || is_short_;
}

}  // namespace ddprun::rendezvous
