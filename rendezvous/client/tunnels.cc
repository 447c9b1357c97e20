#include "rendezvous/client/tunnels.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {
namespace {

// What epoll knows the descriptors by; from kFirstId on twice a tunnel's id, and one more for its
// near end.
constexpr uint64_t kWake = 0, kDoor = 1, kFirstId = 1;
constexpr size_t kScratchBytes = 64 * 1024;
constexpr int kAcceptsPerTurn = 64;

}  // namespace

Tunnels::Tunnels(std::shared_ptr<const TlsIdentity> identity)
    : identity_(std::move(identity)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_id_(kFirstId),
      scratch_(kScratchBytes) {}

absl::StatusOr<std::unique_ptr<Tunnels>> Tunnels::Start(
    std::shared_ptr<const TlsIdentity> identity) {
  auto tunnels = std::unique_ptr<Tunnels>(new Tunnels(std::move(identity)));
  const bool is_open = tunnels->epoll_.is_open() && tunnels->wake_.is_open() &&
                       tunnels->Watch(tunnels->wake_.get(), kWake, EPOLLIN);
  if (!is_open) return absl::ErrnoToStatus(errno, "watch the connections to other agents");
  tunnels->thread_ = StartQuietThread([raw = tunnels.get()] { raw->Run(); });
  if (!tunnels->thread_.joinable()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("start a thread for the connections to other agents: ", kNoThreadText));
  }
  return tunnels;
}

Tunnels::~Tunnels() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  Wake();
  thread_.join();
}

void Tunnels::Wake() const { eventfd_write(wake_.get(), 1); }

UniqueFd Tunnels::Open(const SocketAddress& address) {
  UniqueFd near_end, inner;
  if (!MakeSocketPair(inner, near_end)) return {};
  std::unique_ptr<Pipe> pipe = Dial(address, std::move(inner));
  if (pipe == nullptr) return near_end;  // closed at its far side: that is the answer
  {
    const std::lock_guard lock(mutex_);
    opened_.push_back(std::move(pipe));
  }
  Wake();
  return near_end;
}

void Tunnels::Relay(UniqueFd door, const SocketAddress& address) {
  {
    const std::lock_guard lock(mutex_);
    new_relay_.emplace(NewRelay{std::move(door), address});
  }
  Wake();
}

std::unique_ptr<Pipe> Tunnels::Dial(const SocketAddress& address, UniqueFd inner) const {
  UniqueFd outer(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!outer.is_open()) return nullptr;
  const int on = 1;
  setsockopt(outer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Before it is watched: a socket that has not begun to connect counts as hung up.
  const int result = connect(outer.get(), address.get(), address.size);
  if (result != 0 && errno != EINPROGRESS && errno != EINTR) return nullptr;
  return std::make_unique<Pipe>(std::move(outer), std::move(inner),
                                std::make_unique<TlsStream>(identity_, TlsStream::Role::kClient));
}

bool Tunnels::Watch(int fd, uint64_t tag, uint32_t events, uint32_t* watched) {
  if (watched != nullptr && std::exchange(*watched, events) == events) return true;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return true;
  return errno == ENOENT && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Tunnels::Unwatch(int fd) {
  // To close it is not enough: a child that has not reached exec yet has it, too.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Tunnels::Run() {
  for (;;) {
    const TimePoint before = SteadyNow();
    if (door_.is_open()) {
      Watch(door_.get(), kDoor, before >= accept_again_at_ ? EPOLLIN : 0U, &door_events_);
    }
    epoll_event events[128];
    const int count = epoll_wait(epoll_.get(), events, 128, MillisecondsToWait(before));
    const TimePoint now = SteadyNow();
    bool has_orders = false, is_someone_there = false;
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (tag == kWake) {
        has_orders = true;
      } else if (tag == kDoor) {
        is_someone_there = true;
      } else {
        OnEvent(tag, events[i].events, now);
      }
    }
    if (is_someone_there) AcceptAll(now);
    if (has_orders) TakeOrders(now);
    DropLate(now);
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
  }
}

int Tunnels::MillisecondsToWait(TimePoint now) const {
  Duration wait = std::chrono::hours(1);
  for (const auto& [id, tunnel] : tunnels_) {
    if (tunnel.ready_by) wait = std::min(wait, Duration(*tunnel.ready_by - now));
  }
  if (accept_again_at_ > now) wait = std::min(wait, Duration(accept_again_at_ - now));
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<int>(std::max<int64_t>(0, milliseconds));
}

void Tunnels::TakeOrders(TimePoint now) {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  std::vector<std::unique_ptr<Pipe>> opened;
  std::optional<NewRelay> relay;
  {
    const std::lock_guard lock(mutex_);
    opened.swap(opened_);
    relay = std::exchange(new_relay_, std::nullopt);
  }
  for (std::unique_ptr<Pipe>& pipe : opened) Add(std::move(pipe), false, now);
  if (!relay) return;
  if (door_.is_open()) Unwatch(door_.get());
  for (auto it = tunnels_.begin(); it != tunnels_.end();) {
    const auto tunnel = it++;
    if (tunnel->second.is_relayed) Drop(tunnel);
  }
  door_ = std::move(relay->door);
  door_events_ = kUnwatched;
  relay_to_ = relay->address;
}

void Tunnels::AcceptAll(TimePoint now) {
  for (int i = 0; i < kAcceptsPerTurn && door_.is_open(); ++i) {
    UniqueFd fd(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_at_ = now + kAcceptRest;
      return;
    }
    // Through it another user of this machine would be one of the job.
    if (users_.IsOfOthers(fd.get())) continue;
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::unique_ptr<Pipe> pipe = Dial(relay_to_, std::move(fd));
    if (pipe != nullptr) Add(std::move(pipe), true, now);
  }
}

void Tunnels::Add(std::unique_ptr<Pipe> pipe, bool is_relayed, TimePoint now) {
  const Id id = next_id_++;
  Tunnel& tunnel = tunnels_[id];
  tunnel.pipe = std::move(pipe);
  tunnel.is_relayed = is_relayed;
  tunnel.ready_by = now + kHandshakeLimit;
  // Where it is connected already: a port that is full drops who has said nothing first.
  if (!tunnel.pipe->CarryOut(scratch_) || !Rewatch(id, tunnel)) Drop(tunnels_.find(id));
}

bool Tunnels::Rewatch(Id id, Tunnel& tunnel) {
  Pipe& pipe = *tunnel.pipe;
  return Watch(pipe.outer_fd(), 2 * id, pipe.outer_events(), &tunnel.outer_events) &&
         (pipe.inner_fd() < 0 ||
          Watch(pipe.inner_fd(), 2 * id + 1, pipe.inner_events(), &tunnel.inner_events));
}

void Tunnels::OnEvent(uint64_t tag, uint32_t events, TimePoint now) {
  const Id id = tag / 2;
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;  // dropped earlier in this turn
  Tunnel& tunnel = found->second;
  Pipe& pipe = *tunnel.pipe;
  const bool is_inner = tag % 2 == 1;
  const bool has_hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (has_hung_up && !is_inner) {
    // What came before the end is for the near end all the same.
    constexpr int kReads = 16;
    for (int i = 0; i < kReads && pipe.CarryIn(now, scratch_); ++i) continue;
    return Drop(found);
  }
  if (has_hung_up) {
    Unwatch(pipe.inner_fd());
    pipe.CloseInner(scratch_);
    // For what it has said last.
    tunnel.ready_by = now + kHandshakeLimit;
  }
  const bool is_in = (events & (is_inner ? EPOLLOUT : EPOLLIN)) != 0;
  const bool is_out = has_hung_up || (events & (is_inner ? EPOLLIN : EPOLLOUT)) != 0;
  const bool goes_on = (!is_in || pipe.CarryIn(now, scratch_)) &&
                       (!is_out || pipe.CarryOut(scratch_)) && Rewatch(id, tunnel);
  if (!goes_on) return Drop(found);
  if (pipe.is_ready() && pipe.inner_fd() >= 0) tunnel.ready_by.reset();
}

void Tunnels::DropLate(TimePoint now) {
  for (auto it = tunnels_.begin(); it != tunnels_.end();) {
    const auto tunnel = it++;
    if (tunnel->second.ready_by && *tunnel->second.ready_by <= now) Drop(tunnel);
  }
}

void Tunnels::Drop(std::map<Id, Tunnel>::iterator tunnel) {
  const Pipe& pipe = *tunnel->second.pipe;
  Unwatch(pipe.outer_fd());
  if (pipe.inner_fd() >= 0) Unwatch(pipe.inner_fd());
  tunnels_.erase(tunnel);
}

}  // namespace ddprun::rendezvous
