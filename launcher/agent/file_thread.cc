#include "launcher/agent/file_thread.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace asio = boost::asio;

class FileThread::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, Options options)
      : io_(&io), options_(std::move(options)), timer_(std::make_unique<asio::steady_timer>(io)) {}

  void Start() {
    thread_ = StartQuietThread([self = shared_from_this()] { self->Run(); });
  }

  void Queue(Task task) {
    const TimePoint now = SteadyNow();
    asked_.push_back({.id = next_id_, .since = now, .by = now + task.timeout});
    asked_.back().file = task.file.empty() ? task.name : task.file;
    asked_.back().answer = std::move(task.answer);
    {
      const std::lock_guard lock(mutex_);
      work_.push_back({next_id_++, std::move(task.name), std::move(task.work)});
    }
    if (thread_.joinable()) {
      changed_.notify_one();
    } else {
      asio::post(*io_, [self = shared_from_this()] { self->RunOne(); });
    }
    Arm();
  }

  void Touch(const std::string& file) {
    const std::lock_guard lock(mutex_);
    touched_ = file;
  }

  bool is_idle() const {
    const std::lock_guard lock(mutex_);
    return work_.empty() && !is_working_;
  }

  // From here on the io_context and this object's owner are not touched.
  void Stop() {
    bool is_idle = false;
    {
      const std::lock_guard lock(mutex_);
      io_ = nullptr;
      work_.clear();
      is_idle = !is_working_;
    }
    changed_.notify_one();
    timer_.reset();
    asked_.clear();
    if (!thread_.joinable()) return;
    if (is_idle) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }

 private:
  struct Work {
    uint64_t id;
    std::string name;
    std::function<void()> run;
  };
  // A question without its answer.
  struct Asked {
    uint64_t id;
    TimePoint since;
    TimePoint by;
    std::string file{};
    std::function<void(bool)> answer{};
    bool is_late = false;       // answered without a result; the work may still hang
    bool is_slow_told = false;  // or will not be
  };

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return io_ == nullptr || !work_.empty(); });
      if (io_ == nullptr) return;
      lock.unlock();
      RunOne();
      lock.lock();
    }
  }

  void RunOne() {
    std::unique_lock lock(mutex_);
    if (io_ == nullptr || work_.empty()) return;
    const Work work = std::move(work_.front());
    work_.pop_front();
    is_working_ = true;
    touched_.clear();
    lock.unlock();
    if (options_.hold_for_test) options_.hold_for_test(work.name);
    work.run();
    lock.lock();
    is_working_ = false;
    if (io_ == nullptr) return;
    asio::post(*io_, [self = shared_from_this(), id = work.id] { self->Finish(id); });
  }

  // What follows is the io_context's.

  void Finish(uint64_t id) {
    const auto asked = Find(id);
    if (asked == asked_.end()) return;
    const Asked done = std::move(*asked);
    asked_.erase(asked);
    if (!asked_.empty()) asked_.front().since = SteadyNow();  // its turn has come
    Arm();
    if (!done.is_late) done.answer(true);
  }

  // Whether the work had not begun; it never does.
  bool Forget(uint64_t id) {
    const std::lock_guard lock(mutex_);
    return std::erase_if(work_, [id](const Work& work) { return work.id == id; }) > 0;
  }

  std::deque<Asked>::iterator Find(uint64_t id) {
    return std::find_if(asked_.begin(), asked_.end(),
                        [id](const Asked& asked) { return asked.id == id; });
  }

  void Arm() {
    if (timer_ == nullptr) return;
    std::optional<TimePoint> next;
    for (const Asked& asked : asked_) {
      if (!asked.is_late) next = std::min(next.value_or(asked.by), asked.by);
    }
    if (!asked_.empty() && !asked_.front().is_slow_told) {
      const TimePoint slow_at = asked_.front().since + options_.slow_after;
      next = std::min(next.value_or(slow_at), slow_at);
    }
    if (!next) {
      timer_->cancel();
      return;
    }
    timer_->expires_at(ToSteady(*next));
    timer_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->Check();
    });
  }

  std::string SlowFile() const {
    const std::lock_guard lock(mutex_);
    return touched_.empty() ? asked_.front().file : touched_;
  }

  void Check() {
    const TimePoint now = SteadyNow();
    if (!asked_.empty() && !asked_.front().is_slow_told &&
        asked_.front().since + options_.slow_after <= now) {
      asked_.front().is_slow_told = true;
      if (options_.on_slow) options_.on_slow(SlowFile());
    }
    std::vector<std::function<void(bool)>> late;
    for (Asked& asked : asked_) {
      if (asked.is_late || asked.by > now) continue;
      asked.is_late = true;
      late.push_back(std::move(asked.answer));
    }
    std::erase_if(asked_, [this](const Asked& asked) { return asked.is_late && Forget(asked.id); });
    Arm();
    for (const auto& answer : late) answer(false);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  asio::io_context* io_;  // null: stopped
  std::deque<Work> work_;
  bool is_working_ = false;
  std::string touched_;  // by what is being done

  const Options options_;
  std::unique_ptr<asio::steady_timer> timer_;
  std::deque<Asked> asked_;
  uint64_t next_id_ = 0;
  std::thread thread_;
};

FileThread::FileThread(asio::io_context& io, Options options)
    : impl_(std::make_shared<Impl>(io, std::move(options))) {
  impl_->Start();
}
FileThread::~FileThread() { impl_->Stop(); }
void FileThread::Queue(Task task) { impl_->Queue(std::move(task)); }
void FileThread::Touch(const std::string& file) { impl_->Touch(file); }
bool FileThread::is_idle() const { return impl_->is_idle(); }

}  // namespace ddprun::launcher
