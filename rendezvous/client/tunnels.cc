#include "rendezvous/client/tunnels.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
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
// What was sent to the coordinator and is not acknowledged for so long ends the connection, as gRPC
// does with its own (its keepalive timeout): the kernel sends it again at intervals that double,
// and a network that is back after 7 s would be found after 13. A worker's may last over a cut of
// minutes.
constexpr unsigned kUnacknowledgedMs = 5000;

}  // namespace

Tunnels::Tunnels(std::shared_ptr<const TlsIdentity> identity)
    : identity_(std::move(identity)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_id_(kFirstId),
      scratch_(kScratchBytes) {}

absl::StatusOr<std::unique_ptr<Tunnels>> Tunnels::Start(
    std::shared_ptr<const TlsIdentity> identity) {
  auto tunnels = std::unique_ptr<Tunnels>(new Tunnels(std::move(identity)));
  const bool is_open = tunnels->watch_.is_open() && tunnels->wake_.is_open() &&
                       tunnels->watch_.Watch(tunnels->wake_.get(), kWake, EPOLLIN);
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
  std::unique_ptr<Pipe> pipe =
      Dial(address, std::move(inner), TlsPurpose::kRendezvous, kUnacknowledgedMs);
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

std::unique_ptr<Pipe> Tunnels::Dial(const SocketAddress& address, UniqueFd inner,
                                    TlsPurpose purpose, unsigned unacknowledged_ms) const {
  UniqueFd outer(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!outer.is_open()) return nullptr;
  const int on = 1;
  setsockopt(outer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(outer.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
             sizeof(unacknowledged_ms));
  // Before it is watched: a socket that has not begun to connect counts as hung up.
  const int result = connect(outer.get(), address.get(), address.size);
  if (result != 0 && errno != EINPROGRESS && errno != EINTR) return nullptr;
  return std::make_unique<Pipe>(
      std::move(outer), std::move(inner),
      std::make_unique<TlsStream>(identity_, TlsStream::Role::kClient, purpose));
}

void Tunnels::Run() {
  for (;;) {
    const TimePoint before = SteadyNow();
    if (door_.is_open()) {
      watch_.Watch(door_.get(), kDoor, before >= accept_again_at_ ? EPOLLIN : 0U, &door_events_);
    }
    const std::span<epoll_event> events = watch_.Wait(TimeToWait(before));
    const TimePoint now = SteadyNow();
    bool has_orders = false, is_someone_there = false;
    for (const epoll_event& event : events) {
      const uint64_t tag = event.data.u64;
      if (tag == kWake) {
        has_orders = true;
      } else if (tag == kDoor) {
        is_someone_there = true;
      } else {
        OnEvent(tag, event.events, now);
      }
    }
    if (is_someone_there) AcceptAll(now);
    if (has_orders) TakeOrders(now);
    DropLate(now);
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
  }
}

Duration Tunnels::TimeToWait(TimePoint now) const {
  Duration wait = std::chrono::hours(1);
  for (const auto& [id, tunnel] : tunnels_) {
    if (tunnel.ready_by) wait = std::min(wait, Duration(*tunnel.ready_by - now));
  }
  if (accept_again_at_ > now) wait = std::min(wait, Duration(accept_again_at_ - now));
  return wait;
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
  if (door_.is_open()) watch_.Unwatch(door_.get());
  for (auto it = tunnels_.begin(); it != tunnels_.end();) {
    const auto tunnel = it++;
    if (tunnel->second.is_relayed) Drop(tunnel);
  }
  door_ = std::move(relay->door);
  door_events_ = PipeWatch::kUnwatched;
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
    std::unique_ptr<Pipe> pipe = Dial(relay_to_, std::move(fd), TlsPurpose::kStore, 0);
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
  if (!tunnel.pipe->CarryOut(scratch_) || !watch_.Watch(id, tunnel)) Drop(tunnels_.find(id));
}

void Tunnels::OnEvent(uint64_t tag, uint32_t events, TimePoint now) {
  const Id id = tag / 2;
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;  // dropped earlier in this turn
  Tunnel& tunnel = found->second;
  switch (watch_.Serve(tag, events, now, tunnel, scratch_)) {
    case PipeWatch::Outcome::kGoesOn:
      if (tunnel.pipe->is_ready() && tunnel.pipe->inner_fd() >= 0) tunnel.ready_by.reset();
      return;
    case PipeWatch::Outcome::kInnerClosed:
      tunnel.ready_by = now + kHandshakeLimit;  // for what it has said last
      return;
    case PipeWatch::Outcome::kOver:
      return Drop(found);
  }
}

void Tunnels::DropLate(TimePoint now) {
  for (auto it = tunnels_.begin(); it != tunnels_.end();) {
    const auto tunnel = it++;
    if (tunnel->second.ready_by && *tunnel->second.ready_by <= now) Drop(tunnel);
  }
}

void Tunnels::Drop(std::map<Id, Tunnel>::iterator tunnel) {
  watch_.Unwatch(tunnel->second);
  tunnels_.erase(tunnel);
}

}  // namespace ddprun::rendezvous
