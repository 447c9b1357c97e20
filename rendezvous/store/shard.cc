#include "rendezvous/store/shard.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {
namespace {

// epoll tags beside the connections' numbers, which begin at kMaxShards.
constexpr uint64_t kWakeTag = 0;
constexpr uint64_t kListenerTag = 1;

constexpr int kAcceptsPerEvent = 64;
constexpr std::chrono::seconds kStalledCheck{1};

bool Watch(int epoll, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreShard>> StoreShard::Start(int index, UniqueFd listener,
                                                              StoreShared& shared,
                                                              ShardPeers& peers) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return absl::ErrnoToStatus(errno, "store: epoll_create1");
  UniqueFd wake_event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_event.is_open()) return absl::ErrnoToStatus(errno, "store: eventfd");
  if (!Watch(epoll.get(), wake_event.get(), EPOLLIN, kWakeTag) ||
      (listener.is_open() && !Watch(epoll.get(), listener.get(), EPOLLIN, kListenerTag))) {
    return absl::ErrnoToStatus(errno, "store: epoll_ctl");
  }
  std::unique_ptr<StoreShard> shard(new StoreShard(index, std::move(listener), std::move(epoll),
                                                   std::move(wake_event), shared, peers));
  shard->thread_ = StartQuietThread([raw = shard.get()] { raw->Run(); });
  if (!shard->thread_.joinable()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("start a thread for the store: ", kNoThreadText));
  }
  return shard;
}

StoreShard::StoreShard(int index, UniqueFd listener, UniqueFd epoll, UniqueFd wake_event,
                       StoreShared& shared, ShardPeers& peers)
    : index_(index),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      wake_event_(std::move(wake_event)),
      shared_(shared),
      peers_(peers) {}

StoreShard::~StoreShard() {
  Stop();
  shared_.open -= connections_.size();
}

void StoreShard::Stop() {
  if (!thread_.joinable()) return;
  is_stopping_ = true;
  eventfd_write(wake_event_.get(), 1);
  thread_.join();
}

void StoreShard::Adopt(UniqueFd connection) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_connections_.push_back(std::move(connection));
  }
  eventfd_write(wake_event_.get(), 1);
}

void StoreShard::Wake(const KvStore::Woken& woken) {
  bool was_empty;
  {
    const std::lock_guard lock(inbox_mutex_);
    was_empty = inbox_wakes_.empty();
    inbox_wakes_.push_back(woken);
  }
  if (was_empty) eventfd_write(wake_event_.get(), 1);
}

void StoreShard::Run() {
  scratch_.resize(64 << 10);
  now_ = SteadyNow();
  epoll_event events[128];
  while (!is_stopping_) {
    const int count = epoll_wait(epoll_.get(), events, 128, TimeoutMs());
    now_ = SteadyNow();
    DDP_CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count && !is_stopping_; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (tag == kWakeTag) {
        DrainInbox();
      } else if (tag == kListenerTag) {
        AcceptSome();
      } else {
        HandleEvents(tag, events[i].events);
      }
      DeliverWakes();
    }
    RunTimers();
  }
}

int StoreShard::TimeoutMs() const {
  TimePoint next = TimePoint::max();
  if (!ungreeted_.empty()) next = ungreeted_.front().first;
  if (is_accept_paused_) next = std::min(next, resume_accept_at_);
  if (shared_.transit_bytes > 0) next = std::min(next, check_stalled_at_);
  if (next == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now_).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void StoreShard::RunTimers() {
  while (!ungreeted_.empty() && ungreeted_.front().first <= now_) DropOldestUngreeted();
  if (is_accept_paused_ && resume_accept_at_ <= now_) {
    is_accept_paused_ = false;
    Watch(epoll_.get(), listener_.get(), EPOLLIN, kListenerTag);
  }
  if (check_stalled_at_ <= now_) {
    check_stalled_at_ = now_ + kStalledCheck;
    if (shared_.transit_bytes > shared_.options.max_transit_bytes / 2) DropStalled();
  }
}

void StoreShard::DrainInbox() {
  eventfd_t ignored;
  eventfd_read(wake_event_.get(), &ignored);
  std::vector<UniqueFd> connections;
  {
    const std::lock_guard lock(inbox_mutex_);
    connections.swap(inbox_connections_);
    wakes_.insert(wakes_.end(), inbox_wakes_.begin(), inbox_wakes_.end());
    inbox_wakes_.clear();
  }
  for (UniqueFd& fd : connections) Add(std::move(fd));
}

void StoreShard::AcceptSome() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      HandleAcceptError();
      return;
    }
    peers_.Place(std::move(fd));
  }
}

void StoreShard::HandleAcceptError() {
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      // Whoever has not even greeted goes first. Otherwise the listener rests: level-triggered it
      // would spin, and the waiting connections stay in the backlog until something closes.
      if (DropOldestUngreeted()) return;
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      is_accept_paused_ = true;
      ++shared_.accept_rests;
      if (shared_.options.on_no_descriptor) shared_.options.on_no_descriptor();
      resume_accept_at_ = now_ + StoreServer::kAcceptRest;
      return;
    default:
      return;  // EAGAIN, EINTR, or a connection that died in the backlog.
  }
}

bool StoreShard::DropOldestUngreeted() {
  while (!ungreeted_.empty()) {
    const uint64_t client = ungreeted_.front().second;
    ungreeted_.pop_front();
    const auto found = connections_.find(client);
    if (found == connections_.end() || found->second->session.is_validated) continue;
    ++shared_.dropped_silent;
    Remove(client);
    return true;
  }
  return false;
}

void StoreShard::Add(UniqueFd fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // No keepalive: a network that is cut for minutes must not cost a job its store. Connections
  // of dead hosts go with the round.
  auto connection = std::make_unique<Connection>();
  connection->session.client = next_sequence_++ * kMaxShards + static_cast<uint64_t>(index_);
  connection->interest = EPOLLIN;
  connection->last_progress = now_;
  const uint64_t client = connection->session.client;
  if (!Watch(epoll_.get(), fd.get(), EPOLLIN, client)) return;
  connection->fd = std::move(fd);
  ungreeted_.emplace_back(now_ + shared_.options.greeting_timeout, client);
  connections_.emplace(client, std::move(connection));
  ++shared_.accepted;
  ++shared_.open;
}

void StoreShard::Remove(uint64_t client) {
  const auto found = connections_.find(client);
  const Connection& connection = *found->second;
  if (connection.session.ticket != 0) {
    const std::lock_guard lock(shared_.mutex);
    shared_.store.Cancel(connection.session.ticket);
  }
  shared_.transit_bytes -= connection.charged;
  --shared_.open;
  connections_.erase(found);
}

// Only under memory pressure: a worker stopped in a debugger in the middle of a reply is no crime.
void StoreShard::DropStalled() {
  std::vector<uint64_t> stalled;
  for (const auto& [client, connection] : connections_) {
    if (connection->charged > 0 &&
        connection->last_progress + shared_.options.stalled_timeout <= now_) {
      stalled.push_back(client);
    }
  }
  shared_.dropped_protocol += stalled.size();
  for (const uint64_t client : stalled) Remove(client);
}

}  // namespace ddprun::rendezvous
