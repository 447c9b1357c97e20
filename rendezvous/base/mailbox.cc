#include "rendezvous/base/mailbox.h"

#include <utility>

#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun {

void Mailbox::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;  // the task ends with its caller's lock released
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Mailbox::Close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

bool Mailbox::RunUntil(std::optional<TimePoint> deadline) {
  std::unique_lock lock(mutex_);
  const auto is_ready = [this] { return is_closed_ || !tasks_.empty(); };
  if (deadline) {
    changed_.wait_until(lock, ToSteady(*deadline), is_ready);
  } else {
    changed_.wait(lock, is_ready);
  }
  while (!tasks_.empty()) {
    std::deque<Task> tasks = std::exchange(tasks_, {});
    lock.unlock();
    for (const Task& task : tasks) task();
    tasks.clear();
    lock.lock();
    if (!is_closed_) return true;
  }
  if (!is_closed_) return true;
  is_done_ = true;
  lock.unlock();
  changed_.notify_all();
  return false;
}

bool Mailbox::WaitDone(Duration timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, ToSteady(SteadyNow() + timeout), [this] { return is_done_; });
}

HelperThread::HelperThread(Duration patience)
    : patience_(patience), thread_(StartQuietThread([mailbox = mailbox_] {
        while (mailbox->RunUntil(std::nullopt)) {
        }
      })) {}

HelperThread::~HelperThread() {
  mailbox_->Close();
  if (!is_running()) return;
  if (mailbox_->WaitDone(patience_)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

}  // namespace ddprun
