#include "launcher/agent/file_helper.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {

struct FileHelper::Task {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
};

bool FileHelper::IsFree() const {
  if (!last_) return true;
  const std::lock_guard<std::mutex> lock(last_->mutex);
  return last_->is_done;
}

bool FileHelper::Run(std::function<void()> work) {
  if (!IsFree()) return false;
  last_ = std::make_shared<Task>();
  last_->work = std::move(work);
  std::thread thread = StartQuietThread([task = last_] {
    task->work();
    const std::lock_guard<std::mutex> lock(task->mutex);
    task->is_done = true;
    task->changed.notify_one();
  });
  if (!thread.joinable()) {  // no thread is left: then without a deadline
    const std::shared_ptr<Task> task = std::exchange(last_, nullptr);
    task->work();
    return true;
  }
  std::unique_lock<std::mutex> lock(last_->mutex);
  const bool is_done = last_->changed.wait_until(lock, ToSteady(SteadyNow() + timeout_),
                                                 [this] { return last_->is_done; });
  lock.unlock();
  if (is_done) {
    thread.join();
  } else {
    thread.detach();
  }
  return is_done;
}

}  // namespace ddprun::launcher
