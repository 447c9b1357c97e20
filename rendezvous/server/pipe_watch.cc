#include "rendezvous/server/pipe_watch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace ddprun::rendezvous {
namespace {

constexpr size_t kEventsPerTurn = 128;

}  // namespace

PipeWatch::PipeWatch() : epoll_(epoll_create1(EPOLL_CLOEXEC)), events_(kEventsPerTurn) {}

bool PipeWatch::Watch(int fd, uint64_t tag, uint32_t events, uint32_t* watched) {
  if (watched != nullptr && std::exchange(*watched, events) == events) return true;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return true;
  return errno == ENOENT && epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void PipeWatch::Unwatch(int fd) {
  // To close it is not enough: a child that has not reached exec yet has it, too.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<epoll_event> PipeWatch::Wait(Duration wait) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  const int count = epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()),
                               static_cast<int>(std::max<int64_t>(0, milliseconds)));
  return {events_.data(), static_cast<size_t>(std::max(0, count))};
}

bool PipeWatch::Watch(uint64_t number, Watched& watched) {
  const Pipe& pipe = *watched.pipe;
  return Watch(pipe.outer_fd(), 2 * number, pipe.outer_events(), &watched.outer_events) &&
         (pipe.inner_fd() < 0 ||
          Watch(pipe.inner_fd(), 2 * number + 1, pipe.inner_events(), &watched.inner_events));
}

void PipeWatch::Unwatch(const Watched& watched) {
  Unwatch(watched.pipe->outer_fd());
  if (watched.pipe->inner_fd() >= 0) Unwatch(watched.pipe->inner_fd());
}

PipeWatch::Outcome PipeWatch::Serve(uint64_t tag, uint32_t events, TimePoint now, Watched& watched,
                                    std::vector<char>& scratch) {
  Pipe& pipe = *watched.pipe;
  const bool is_inner = tag % 2 == 1;
  const bool has_hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (has_hung_up && !is_inner) {
    // What came before a reset may be somebody's last words: the inner end gets what it takes.
    constexpr int kReads = 16;
    for (int i = 0; i < kReads && pipe.CarryIn(now, scratch); ++i) continue;
    return Outcome::kOver;
  }
  if (has_hung_up) {
    Unwatch(pipe.inner_fd());
    pipe.CloseInner(scratch);
  }
  const bool is_in = (events & (is_inner ? EPOLLOUT : EPOLLIN)) != 0;
  const bool is_out = has_hung_up || (events & (is_inner ? EPOLLIN : EPOLLOUT)) != 0;
  const bool goes_on = (!is_in || pipe.CarryIn(now, scratch)) &&
                       (!is_out || pipe.CarryOut(scratch)) && Watch(tag / 2, watched);
  if (!goes_on) return Outcome::kOver;
  return has_hung_up ? Outcome::kInnerClosed : Outcome::kGoesOn;
}

}  // namespace ddprun::rendezvous
