#include "rendezvous/store/store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::rendezvous {
namespace {

// What epoll knows the descriptors by; connections have the numbers from kFirstClient on.
constexpr uint64_t kWakeTag = 0;
constexpr uint64_t kListenerTag = 1;
constexpr uint64_t kFirstClient = 2;

constexpr int kAcceptsPerEvent = 64;
constexpr std::chrono::seconds kStalledCheck{1};
constexpr size_t kReceiveBytes = 64 << 10;
constexpr size_t kMaxReserve = 512;

size_t ConnectionsThatFit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMaxReserve;
  const auto most = static_cast<size_t>(files.rlim_cur);
  return most - std::min(most / 8, kMaxReserve);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const Options& options,
                                                                const Clock& clock) {
  std::unique_ptr<StoreServer> self(new StoreServer(options, clock));
  if (options.bind == Bind::kLoopback) self->users_.emplace();
  if (options.bind != Bind::kNone) {
    auto listener = ListenOn("127.0.0.1", options.port);
    if (!listener.ok()) {
      return absl::Status(listener.status().code(),
                          absl::StrCat("store: ", listener.status().message()));
    }
    self->port_ = LocalPort(listener->get());
    self->listeners_.push_back(*std::move(listener));
  }
  self->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!self->epoll_.is_open()) return absl::ErrnoToStatus(errno, "store: epoll_create1");
  self->wake_event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!self->wake_event_.is_open()) return absl::ErrnoToStatus(errno, "store: eventfd");
  if (!self->Watch(self->wake_event_.get(), kWakeTag) ||
      (!self->listeners_.empty() && !self->Watch(self->listeners_[0].get(), kListenerTag))) {
    return absl::ErrnoToStatus(errno, "store: epoll_ctl");
  }
  self->thread_ = StartQuietThread([raw = self.get()] { raw->Run(); });
  if (!self->thread_.joinable()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("start a thread for the store: ", kNoThreadText));
  }
  return self;
}

StoreServer::StoreServer(const Options& options, const Clock& clock)
    : options_(options),
      clock_(clock),
      max_connections_(options.max_connections > 0 ? options.max_connections
                                                   : ConnectionsThatFit()),
      store_(options.max_store_bytes),
      next_client_(kFirstClient),
      scratch_(kReceiveBytes) {}

StoreServer::~StoreServer() { Close(); }

void StoreServer::Close() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  eventfd_write(wake_event_.get(), 1);
  thread_.join();
  listeners_.clear();
  users_.reset();
  adopted_.clear();
  new_listeners_.clear();
  unserved_.clear();
  connections_.clear();
  open_ = 0;
}

void StoreServer::Adopt(UniqueFd connection) {
  const int flags = fcntl(connection.get(), F_GETFL);
  if (flags < 0 || fcntl(connection.get(), F_SETFL, flags | O_NONBLOCK) != 0) return;
  fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  adopted_.push_back(std::move(connection));
  eventfd_write(wake_event_.get(), 1);
}

void StoreServer::Serve(UniqueFd listener) {
  DDP_CHECK(options_.bind == Bind::kNone);
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  new_listeners_.push_back(std::move(listener));
  eventfd_write(wake_event_.get(), 1);
}

StoreServer::Stats StoreServer::stats() const {
  return {.accepted = accepted_,
          .open = open_,
          .dropped_silent = dropped_silent_,
          .dropped_protocol = dropped_protocol_,
          .dropped_users = dropped_users_,
          .keys = keys_,
          .accept_rests = accept_rests_,
          .waiting = waiting_};
}

void StoreServer::PublishStoreStats() {
  keys_ = static_cast<uint64_t>(store_.key_count());
  waiting_ = store_.waiting_count();
}

bool StoreServer::Watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void StoreServer::Run() {
  now_ = clock_.Now();
  epoll_event events[128];
  while (!is_stopping_) {
    const int count = epoll_wait(epoll_.get(), events, 128, TimeoutMs());
    now_ = clock_.Now();
    DDP_CHECK(count >= 0 || errno == EINTR);
    for (int i = 0; i < count && !is_stopping_; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (tag == kWakeTag) {
        TakeAdopted();
      } else if (tag == kListenerTag) {
        for (const UniqueFd& listener : listeners_) AcceptSome(listener);
      } else {
        HandleEvents(tag, events[i].events);
      }
      DeliverWakes();
    }
    RunTimers();
  }
}

int StoreServer::TimeoutMs() const {
  TimePoint next = TimePoint::max();
  if (!ungreeted_.empty()) next = ungreeted_.front().first;
  if (resume_accept_at_) next = std::min(next, *resume_accept_at_);
  if (transit_bytes_ > 0) next = std::min(next, check_stalled_at_);
  return PollTimeout(next, clock_);
}

void StoreServer::RunTimers() {
  while (!ungreeted_.empty() && ungreeted_.front().first <= now_) EndNextGreeting();
  if (resume_accept_at_ && *resume_accept_at_ <= now_) {
    resume_accept_at_.reset();
    ServeUnserved();
    if (!resume_accept_at_) WatchListeners();
  }
  if (check_stalled_at_ <= now_) {
    check_stalled_at_ = now_ + kStalledCheck;
    if (transit_bytes_ > options_.max_transit_bytes / 2) DropStalled();
  }
}

void StoreServer::TakeAdopted() {
  eventfd_t ignored;
  eventfd_read(wake_event_.get(), &ignored);
  std::vector<UniqueFd> connections, listeners;
  {
    const std::lock_guard lock(mutex_);
    connections.swap(adopted_);
    listeners.swap(new_listeners_);
  }
  for (UniqueFd& fd : listeners) {
    if (!resume_accept_at_) Watch(fd.get(), kListenerTag);
    listeners_.push_back(std::move(fd));
  }
  for (UniqueFd& fd : connections) unserved_.push_back(std::move(fd));
  ServeUnserved();  // while accept rests, too: these have their descriptors
  while (unserved_.size() > kMaxUnserved) unserved_.pop_back();
}

void StoreServer::ServeUnserved() {
  // They have had no time to greet: none of them makes room for the next.
  std::vector<UniqueFd> served;
  while (!unserved_.empty() && MakeRoom(served.size())) {
    served.push_back(std::move(unserved_.front()));
    unserved_.pop_front();
  }
  for (UniqueFd& fd : served) Add(std::move(fd));
  if (!unserved_.empty()) Rest();
}

void StoreServer::WatchListeners() {
  for (const UniqueFd& listener : listeners_) Watch(listener.get(), kListenerTag);
}

void StoreServer::AcceptSome(const UniqueFd& listener) {
  if (resume_accept_at_) return;  // another listener had to rest in this turn
  std::vector<UniqueFd> accepted;
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      HandleAcceptError();  // before these count as silent: they have had no time to greet
      break;
    }
    // On loopback the network keeps nobody out.
    if (users_ && users_->IsOfOthers(fd.get())) {
      ++dropped_users_;
      continue;
    }
    if (!MakeRoom(accepted.size())) {
      unserved_.push_back(std::move(fd));
      Rest();
      break;
    }
    accepted.push_back(std::move(fd));
  }
  for (UniqueFd& fd : accepted) Add(std::move(fd));
}

void StoreServer::HandleAcceptError() {
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      if (!DropOldestUngreeted() && !DropOldestIdle()) Rest();
      return;
    default:
      return;  // EAGAIN, EINTR, or a connection that died in the backlog.
  }
}

// Level-triggered the listener would spin; the waiting connections stay in the backlog until
// something closes.
void StoreServer::Rest() {
  for (const UniqueFd& listener : listeners_) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
  }
  resume_accept_at_ = now_ + kAcceptRest;
  ++accept_rests_;
  if (options_.on_no_descriptor) options_.on_no_descriptor();
}

bool StoreServer::MakeRoom(size_t coming) {
  const bool has_room = connections_.size() + coming < max_connections_;
  return has_room || DropOldestUngreeted() || DropOldestIdle();
}

bool StoreServer::EndNextGreeting() {
  const uint64_t client = ungreeted_.front().second;
  ungreeted_.pop_front();
  const auto found = connections_.find(client);
  if (found == connections_.end() || found->second.session.is_validated) return false;
  ++dropped_silent_;
  Remove(client);
  return true;
}

bool StoreServer::DropOldestUngreeted() {
  while (!ungreeted_.empty()) {
    if (EndNextGreeting()) return true;
  }
  return false;
}

// Clients ask for something at once: who only greets keeps a place, as strangers can by five bytes.
bool StoreServer::DropOldestIdle() {
  std::optional<uint64_t> oldest;
  for (const auto& [client, connection] : connections_) {
    const StoreSession& session = connection.session;
    const bool is_idle = session.is_validated && !session.has_asked &&
                         connection.last_progress + options_.idle_timeout <= now_;
    if (is_idle) oldest = std::min(oldest.value_or(client), client);
  }
  if (!oldest) return false;
  ++dropped_silent_;
  Remove(*oldest);
  return true;
}

void StoreServer::Add(UniqueFd fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // No keepalive: a network that is cut for minutes must not cost a job its store. Connections
  // of dead hosts go with the round.
  const uint64_t client = next_client_++;
  if (!Watch(fd.get(), client)) return;
  Connection& connection = connections_[client];
  connection.fd = std::move(fd);
  connection.session.client = client;
  connection.interest = EPOLLIN;
  connection.last_progress = now_;
  ungreeted_.emplace_back(now_ + options_.greeting_timeout, client);
  ++accepted_;
  ++open_;
}

void StoreServer::Remove(uint64_t client) {
  const auto found = connections_.find(client);
  const Connection& connection = found->second;
  if (connection.session.ticket != 0) {
    store_.Cancel(connection.session.ticket);
    PublishStoreStats();
  }
  transit_bytes_ -= connection.charged;
  --open_;
  connections_.erase(found);
}

// Only under memory pressure: a worker stopped in a debugger in the middle of a reply is no crime.
void StoreServer::DropStalled() {
  std::vector<uint64_t> stalled;
  for (const auto& [client, connection] : connections_) {
    if (connection.charged > 0 && connection.last_progress + options_.stalled_timeout <= now_) {
      stalled.push_back(client);
    }
  }
  dropped_protocol_ += stalled.size();
  for (const uint64_t client : stalled) Remove(client);
}

}  // namespace ddprun::rendezvous
