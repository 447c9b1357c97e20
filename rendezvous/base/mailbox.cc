#include "rendezvous/base/mailbox.h"

#include <utility>

#include "rendezvous/base/quiet_thread.h"

namespace ddprun {

void Mailbox::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;  // the task, a parameter, ends after the lock
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();  // past the lock, which the thread would wait for
}

void Mailbox::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

bool Mailbox::RunFor(Duration wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [this] { return is_closed_ || !tasks_.empty(); });
  while (!tasks_.empty()) {
    std::deque<Task> tasks = std::exchange(tasks_, {});
    lock.unlock();
    for (const Task& task : tasks) task();
    tasks.clear();
    lock.lock();
    if (!is_closed_) return true;
  }
  return !is_closed_;
}

bool Mailbox::is_empty() const {
  const std::lock_guard lock(mutex_);
  return tasks_.empty();
}

HelperThread::HelperThread(Duration patience, const Clock& clock)
    : patience_(patience), clock_(clock) {
  const auto end = std::make_shared<std::promise<void>>();
  end_ = end->get_future();
  thread_ = StartQuietThread([mailbox = mailbox_, end] {
    while (mailbox->RunFor()) {
    }
    end->set_value();
  });
}

HelperThread::~HelperThread() {
  mailbox_->Close();
  if (!is_running()) return;
  if (IsReadyBy(end_, clock_.Now() + patience_, clock_)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

}  // namespace ddprun
