#include "worker_runtime/comm/shm/shm_setup.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/look_for_word.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;

// The one message a rank sends when it joins.
struct Hello {
  Nonce nonce;
  int32_t index;
};

// A connection that does not say hello within this is dropped.
constexpr std::chrono::seconds kHelloTimeout(5);

int PollMs(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

// Whether the process at the other end is of our user. Its pid may be 0 in another pid namespace.
bool CheckPeer(int fd, pid_t* pid) {
  ucred credentials;
  socklen_t length = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  *pid = credentials.pid;
  return credentials.uid == geteuid();
}

bool HasEnded(int pidfd) {
  pollfd polled{pidfd, POLLIN, 0};
  return poll(&polled, 1, 0) != 0;
}

// One for each process, however many groups it is in with this one. Null for ourselves: ranks that
// are threads of one process end by closing their socket.
std::shared_ptr<const UniqueFd> PidfdOf(pid_t pid) {
  if (pid <= 0 || pid == getpid()) return nullptr;
  // Never destroyed: threads may use both while the process ends.
  static auto& mutex = *new std::mutex();
  static auto& known = *new std::map<pid_t, std::weak_ptr<const UniqueFd>>();
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<const UniqueFd> held = known[pid].lock();
  // The number of a process that has ended may be another one's by now.
  if (held != nullptr && !HasEnded(held->get())) return held;
  UniqueFd opened(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!opened.is_open()) return nullptr;
  held = std::make_shared<const UniqueFd>(std::move(opened));
  known[pid] = held;
  return held;
}

// One byte, which a message must have, and room for one descriptor.
struct DescriptorMessage {
  DescriptorMessage() {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 1;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool SendMemory(int socket, int memory) {
  DescriptorMessage sent;
  cmsghdr* header = CMSG_FIRSTHDR(&sent.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  return sendmsg(socket, &sent.message, MSG_NOSIGNAL) == 1;
}

absl::StatusOr<UniqueFd> ReceiveMemory(int socket, const std::string& who) {
  const absl::Status has_ended = absl::UnavailableError(absl::StrCat(who, " has ended"));
  DescriptorMessage received;
  if (recvmsg(socket, &received.message, MSG_CMSG_CLOEXEC) != 1) return has_ended;
  // The kernel had a descriptor for us, and no room for it here.
  if ((received.message.msg_flags & MSG_CTRUNC) != 0) {
    return Refused("take this node's shared memory", EMFILE);
  }
  cmsghdr* header = CMSG_FIRSTHDR(&received.message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return has_ended;
  }
  int fd;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

absl::Status SocketStatus(const char* what) {
  return Refused(absl::StrCat(what, " for this node's ranks"), errno);
}

// What the first rank leaves in place of its address, so that the others do not wait for it.
constexpr char kFailed[] = "failed ";

// Where another rank says why it does not come.
std::string FollowerKey(const std::string& key) { return absl::StrCat(key, "/failed"); }

// The first rank's side.
class Leader {
 public:
  Leader(std::vector<int> ranks, UniqueFd memory)
      : ranks_(std::move(ranks)), memory_(std::move(memory)), has_joined_(ranks_.size()) {}

  absl::Status Publish(Store& store, const std::string& key) {
    listener_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_.is_open()) return SocketStatus("socket");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // Binding to a family alone makes the kernel choose an abstract name nobody has.
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0) {
      return SocketStatus("bind");
    }
    socklen_t length = sizeof address;
    if (getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      return SocketStatus("getsockname");
    }
    if (listen(listener_.get(), 1024) != 0) return SocketStatus("listen");
    nonce_ = MakeNonce();
    const char* name = reinterpret_cast<const char*>(&address);
    return store.Set(key, absl::StrCat(NonceText(nonce_), " ",
                                       absl::BytesToHexString(std::string(name, length))));
  }

  // REQUIRES: Publish() has put our address under `key`.
  absl::StatusOr<std::vector<PeerLink>> AwaitAll(Store& store, const std::string& key,
                                                 Clock::time_point deadline) {
    while (links_.size() + 1 < ranks_.size()) {
      if (Clock::now() >= deadline) return absl::DeadlineExceededError(WhoIsMissing());
      absl::Status status = Poll(store, key, deadline);
      if (!status.ok()) return status;
    }
    return std::move(links_);
  }

 private:
  struct Stranger {
    UniqueFd socket;
    pid_t pid;
    Clock::time_point deadline;
  };

  std::string WhoIsMissing() const {
    std::vector<int> missing;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      if (!has_joined_[i]) missing.push_back(ranks_[i]);
    }
    return absl::StrCat(NameRanks(missing), " did not join the shared memory of this node");
  }

  absl::Status Poll(Store& store, const std::string& key, Clock::time_point deadline) {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Stranger& stranger : strangers_)
      polled.push_back({stranger.socket.get(), POLLIN, 0});
    const int ready = poll(polled.data(), polled.size(), PollMs(deadline));
    if (ready < 0) return absl::OkStatus();
    // A second in which nobody came: who cannot come has a connection to the store alone.
    if (ready == 0 && Clock::now() < deadline) {
      const auto word = LookForWord(store, FollowerKey(key), deadline);
      if (word.has_value()) return absl::UnavailableError(*word);
    }
    std::vector<Stranger> remaining;
    for (size_t i = 0; i < strangers_.size(); ++i) {
      if (polled[i + 1].revents != 0) {
        Admit(std::move(strangers_[i]));
      } else if (Clock::now() < strangers_[i].deadline) {
        remaining.push_back(std::move(strangers_[i]));
      }
    }
    strangers_ = std::move(remaining);
    const bool has_room = strangers_.size() <= ranks_.size() + 64;
    return polled[0].revents != 0 && has_room ? Accept() : absl::OkStatus();
  }

  absl::Status Accept() {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    // It stays in the queue, and poll() would say so at once.
    if (!socket.is_open() && !is_passing) return SocketStatus("accept a connection");
    pid_t pid = 0;
    if (!socket.is_open() || !CheckPeer(socket.get(), &pid)) return absl::OkStatus();
    strangers_.push_back({std::move(socket), pid, Clock::now() + kHelloTimeout});
    return absl::OkStatus();
  }

  // Drops the connection unless it proves itself.
  void Admit(Stranger stranger) {
    Hello hello;
    if (recv(stranger.socket.get(), &hello, sizeof hello, MSG_TRUNC) != sizeof hello) return;
    if (hello.nonce != nonce_ || hello.index < 1 ||
        hello.index >= static_cast<int>(ranks_.size()) || has_joined_[hello.index]) {
      return;
    }
    if (!SendMemory(stranger.socket.get(), memory_.get())) return;
    has_joined_[hello.index] = true;
    links_.push_back({hello.index, std::move(stranger.socket), PidfdOf(stranger.pid)});
  }

  const std::vector<int> ranks_;
  const UniqueFd memory_;
  Nonce nonce_{};
  UniqueFd listener_;
  std::vector<Stranger> strangers_;
  std::vector<bool> has_joined_;
  std::vector<PeerLink> links_;
};

// Best effort: at worst the others wait for their timeout.
absl::Status Told(Store& store, const std::string& key, absl::Status status) {
  try {
    (void)store.Set(key, absl::StrCat(kFailed, status.message()));
  } catch (const std::bad_alloc&) {  // which may be what it would tell
  }
  return status;
}

// Likewise, of a rank that is not the first.
void TellNotJoined(Store& store, const std::string& key, int rank, const absl::Status& why) {
  try {
    (void)store.Set(FollowerKey(key),
                    absl::StrCat("rank ", rank, " did not join: ", why.message()));
  } catch (const std::bad_alloc&) {
  }
}

// Of what the first rank has left in place of its address.
absl::Status ItsWord(const std::string& who, const std::string& value) {
  return absl::UnavailableError(absl::StrCat(who, " has none: ", value.substr(sizeof kFailed - 1)));
}

// `status`, which is a failure, or what the first rank has said of its own end.
absl::Status WithItsWord(Store& store, const std::string& key, const std::string& who,
                         absl::Status status) {
  auto value = store.Get(key, std::chrono::seconds(1));
  return value.ok() && absl::StartsWith(*value, kFailed) ? ItsWord(who, *value) : status;
}

absl::StatusOr<ShmGroup> GroupOver(std::unique_ptr<ShmDomain> domain, std::vector<PeerLink> links) {
  auto watch = PeerWatch::Start(*domain, std::move(links));
  if (!watch.ok()) return watch.status();
  ShmGroup group;
  group.domain = std::move(domain);
  group.watch = *std::move(watch);
  return group;
}

absl::StatusOr<ShmGroup> Lead(Store& store, const std::string& key, std::vector<int> ranks,
                              Clock::time_point deadline) {
  auto memory = ShmDomain::CreateMemory(static_cast<int>(ranks.size()));
  if (!memory.ok()) return memory.status();
  UniqueFd copy(fcntl(memory->get(), F_DUPFD_CLOEXEC, 3));
  if (!copy.is_open()) return SocketStatus("duplicate the shared memory's descriptor");
  auto domain = ShmDomain::Map(std::move(*memory), ranks, 0);
  if (!domain.ok()) return domain.status();
  Leader leader(std::move(ranks), std::move(copy));
  absl::Status status = leader.Publish(store, key);
  if (!status.ok()) return status;
  auto links = leader.AwaitAll(store, key, deadline);
  // While the connections stand: who sees them end looks for a word on it.
  if (!links.ok()) return Told(store, key, links.status());
  return GroupOver(*std::move(domain), *std::move(links));
}

absl::StatusOr<ShmGroup> Follow(Store& store, const std::string& key, std::vector<int> ranks,
                                int index, Clock::time_point deadline) {
  const std::string who =
      absl::StrCat("rank ", ranks[0], ", which holds this node's shared memory,");
  auto value = store.Get(
      key,
      std::max(std::chrono::milliseconds(1),
               std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now())));
  if (!value.ok()) {
    return absl::Status(value.status().code(),
                        absl::StrCat(who, " did not come: ", value.status().message()));
  }
  if (absl::StartsWith(*value, kFailed)) return ItsWord(who, *value);
  Hello hello{};
  hello.index = index;
  const size_t space = value->find(' ');
  sockaddr_un address{};
  const std::string name =
      absl::HexStringToBytes(space == std::string::npos ? "" : value->substr(space + 1));
  if (!ParseNonce(value->substr(0, space), &hello.nonce) || name.size() < sizeof(sa_family_t) ||
      name.size() > sizeof address) {
    return absl::InternalError(absl::StrCat("the store holds garbage under ", key));
  }
  std::memcpy(&address, name.data(), name.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return SocketStatus("socket");
  pid_t pid = 0;
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address),
              static_cast<socklen_t>(name.size())) != 0 ||
      !CheckPeer(socket.get(), &pid) ||
      send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) {
    return WithItsWord(
        store, key, who,
        absl::UnavailableError(absl::StrCat(who, " cannot be reached: ", std::strerror(errno))));
  }
  pollfd polled{socket.get(), POLLIN, 0};
  while (poll(&polled, 1, PollMs(deadline)) <= 0) {
    if (Clock::now() < deadline) continue;
    return absl::DeadlineExceededError(absl::StrCat(who, " did not answer"));
  }
  auto memory = ReceiveMemory(socket.get(), who);
  if (absl::IsUnavailable(memory.status())) return WithItsWord(store, key, who, memory.status());
  if (!memory.ok()) return memory.status();
  auto domain = ShmDomain::Map(*std::move(memory), std::move(ranks), index);
  if (!domain.ok()) return domain.status();
  std::vector<PeerLink> links;
  links.push_back({0, std::move(socket), PidfdOf(pid)});
  return GroupOver(*std::move(domain), std::move(links));
}

// As JoinShmGroup(), and tells nobody of an error.
absl::StatusOr<ShmGroup> Join(Store& store, const std::string& key, std::vector<int> ranks,
                              int index, Clock::time_point deadline) {
  // Made while there is memory for it.
  const absl::Status no_memory = NoMemory("join the shared memory of this node");
  try {
    return index == 0 ? Lead(store, key, std::move(ranks), deadline)
                      : Follow(store, key, std::move(ranks), index, deadline);
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
}

}  // namespace

absl::StatusOr<ShmGroup> JoinShmGroup(Store& store, const std::string& key, std::vector<int> ranks,
                                      int index, Clock::time_point deadline) {
  const int rank = ranks[static_cast<size_t>(index)];
  auto group = Join(store, key, std::move(ranks), index, deadline);
  if (!group.ok() && index == 0) return Told(store, key, group.status());
  if (!group.ok()) TellNotJoined(store, key, rank, group.status());
  return group;
}

}  // namespace ddp::internal
