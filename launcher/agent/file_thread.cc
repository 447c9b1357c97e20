#include "launcher/agent/file_thread.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <set>

#include "launcher/test_gates.h"
#include "rendezvous/base/quiet_thread.h"

namespace ddprun::launcher {
namespace asio = boost::asio;

// What the thread needs, which may outlive its owner with a call that hangs.
struct FileThread::Shared {
  std::mutex mutex;
  FileThread* owner;          // null: gone; changes on the io_context's thread alone
  std::set<uint64_t> wanted;  // has not begun and is not given up
  bool is_working = false;
  std::string touched;    // by what is being done
  asio::io_context work;  // what the thread runs; the mutex is not for it
  // Without it `work` stops after its last task, and a poll of it does nothing from then on.
  asio::executor_work_guard<asio::io_context::executor_type> guard{work.get_executor()};
};

FileThread::FileThread(asio::io_context& io, std::function<void(const std::string&)> on_slow,
                       Duration slow_after)
    : io_(io),
      on_slow_(std::move(on_slow)),
      slow_after_(slow_after),
      slow_timer_(io),
      shared_(std::make_shared<Shared>()) {
  shared_->owner = this;
}

void FileThread::Start() {
  if (std::exchange(has_started_, true)) return;
  thread_ = StartQuietThread([shared = shared_] { shared->work.run(); });
}

FileThread::~FileThread() {
  bool is_working = false;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->owner = nullptr;
    shared_->wanted.clear();
    is_working = shared_->is_working;
  }
  shared_->work.stop();
  if (!thread_.joinable()) return;
  if (is_working) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void FileThread::Queue(const std::string& name, Asked asked, std::function<void()> work) {
  const uint64_t id = next_id_++;
  Start();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->wanted.insert(id);
  }
  // Weak: the work stands in a queue of what it refers to.
  asio::post(shared_->work, [weak = std::weak_ptr(shared_), id, name, work = std::move(work)] {
    const std::shared_ptr<Shared> shared = weak.lock();
    {
      const std::lock_guard lock(shared->mutex);
      if (shared->wanted.erase(id) == 0) return;
      shared->is_working = true;
      shared->touched.clear();
    }
    HoldFileWorkForTest(name);
    work();
    const std::lock_guard lock(shared->mutex);
    shared->is_working = false;
    if (shared->owner == nullptr) return;
    asio::post(shared->owner->io_, [shared, id] {
      if (shared->owner != nullptr) shared->owner->Finish(id);
    });
  });
  if (!thread_.joinable()) asio::post(io_, [shared = shared_] { shared->work.poll_one(); });
  asked.timer.async_wait([shared = shared_, id](const boost::system::error_code& error) {
    if (!error && shared->owner != nullptr) shared->owner->GiveUp(id);
  });
  asked_.emplace(id, std::move(asked));
  if (asked_.size() == 1) WatchFirst();
}

void FileThread::GiveUp(uint64_t id) {
  const auto late = asked_.find(id);
  if (late == asked_.end()) return;  // it is done in this very moment
  const auto answer = std::exchange(late->second.answer, nullptr);
  bool has_begun = false;
  {
    const std::lock_guard lock(shared_->mutex);
    has_begun = shared_->wanted.erase(id) == 0;
  }
  if (!has_begun) Forget(id);
  answer(false);
}

void FileThread::Finish(uint64_t id) {
  const auto answer = std::move(asked_.at(id).answer);
  Forget(id);
  if (answer) answer(true);
}

void FileThread::Forget(uint64_t id) {
  const bool is_first = asked_.begin()->first == id;
  asked_.erase(id);
  if (is_first) WatchFirst();
}

void FileThread::WatchFirst() {
  slow_timer_.cancel();
  if (asked_.empty()) return;
  slow_timer_.expires_after(slow_after_);
  slow_timer_.async_wait(
      [this, shared = shared_, id = asked_.begin()->first](const boost::system::error_code& error) {
        if (error || shared->owner == nullptr || asked_.empty() || asked_.begin()->first != id)
          return;
        std::string file;
        {
          const std::lock_guard lock(shared->mutex);
          file = shared->touched.empty() ? asked_.begin()->second.file : shared->touched;
        }
        if (on_slow_) on_slow_(file);
      });
}

void FileThread::Touch(const std::string& file) {
  const std::lock_guard lock(shared_->mutex);
  shared_->touched = file;
}

bool FileThread::is_idle() const {
  const std::lock_guard lock(shared_->mutex);
  return !shared_->is_working && shared_->wanted.empty();
}

}  // namespace ddprun::launcher
