// Work for one thread, posted by others.
#ifndef DDPRUN_RENDEZVOUS_BASE_MAILBOX_H_
#define DDPRUN_RENDEZVOUS_BASE_MAILBOX_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/time.h"

namespace ddprun {

// Shared by its thread and by whoever posts, which may be late: what comes after Close is dropped.
class Mailbox {
 public:
  using Task = std::function<void()>;
  static constexpr Duration kLongestWait = std::chrono::hours(1);

  void Post(Task task);
  // The thread takes what was posted before, and then nothing more.
  void Close();
  // Waits for tasks, for `wait` at most, and runs those that have come. False: it was closed, and
  // all is done.
  bool RunFor(Duration wait = kLongestWait);
  // Whether nothing has come since RunFor took its tasks.
  bool is_empty() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_closed_ = false;
};

// Whether what was promised is there by `until`.
template <typename T>
bool IsReadyBy(const std::future<T>& promised, TimePoint until, const Clock& clock) {
  while (promised.wait_for(clock.Left(until)) != std::future_status::ready) {
    if (clock.Now() >= until) return false;
  }
  return true;
}

// A thread for work that may hang: in a resolver, on a file system. Tasks own what they touch.
class HelperThread {
 public:
  // The destructor waits `patience` for what was posted, by `clock`, which outlives it, and then
  // leaves the thread to itself.
  HelperThread(Duration patience, const Clock& clock);
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // False: the system had no thread left (kNoThreadText).
  bool is_running() const { return thread_.joinable(); }
  void Post(Mailbox::Task task) const { mailbox_->Post(std::move(task)); }

 private:
  const Duration patience_;
  const Clock& clock_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::future<void> end_;
  std::thread thread_;
};

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_MAILBOX_H_
