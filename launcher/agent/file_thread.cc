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
    if (task.file.empty()) task.file = task.name;
    const TimePoint now = SteadyNow();
    const TimePoint by = now + task.timeout;
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back({std::move(task), next_id_++, now, by});
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

  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return !is_working_ && NextWork() == asked_.end();
  }

  // From here on the io_context and this object's owner are not touched.
  void Stop() {
    bool is_idle = false;
    {
      const std::lock_guard lock(mutex_);
      io_ = nullptr;
      asked_.clear();
      is_idle = !is_working_;
    }
    changed_.notify_one();
    timer_.reset();
    if (!thread_.joinable()) return;
    if (is_idle) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }

 private:
  // Without an answer: it has been answered, and its work hangs.
  struct Asked : Task {
    uint64_t id;
    TimePoint since;  // its turn has come, or it was asked
    TimePoint by;
    bool has_begun = false;
    bool is_slow_told = false;
  };

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return io_ == nullptr || NextWork() != asked_.end(); });
      if (io_ == nullptr) return;
      lock.unlock();
      RunOne();
      lock.lock();
    }
  }

  // REQUIRES: the mutex is held.
  std::deque<Asked>::iterator NextWork() {
    return std::find_if(asked_.begin(), asked_.end(),
                        [](const Asked& asked) { return !asked.has_begun; });
  }

  void RunOne() {
    std::unique_lock lock(mutex_);
    const auto next = NextWork();
    if (next == asked_.end()) return;
    next->has_begun = true;
    is_working_ = true;
    touched_.clear();
    const uint64_t id = next->id;
    const std::string name = next->name;
    const std::function<void()> work = std::move(next->work);
    lock.unlock();
    if (options_.hold_for_test) options_.hold_for_test(name);
    work();
    lock.lock();
    is_working_ = false;
    if (io_ == nullptr) return;
    asio::post(*io_, [self = shared_from_this(), id] { self->Finish(id); });
  }

  // What follows is the io_context's.

  void Finish(uint64_t id) {
    std::function<void(bool)> answer;
    {
      const std::lock_guard lock(mutex_);
      const auto done = std::find_if(asked_.begin(), asked_.end(),
                                     [id](const Asked& asked) { return asked.id == id; });
      if (done == asked_.end()) return;
      answer = std::move(done->answer);
      asked_.erase(done);
      if (!asked_.empty()) asked_.front().since = SteadyNow();
    }
    Arm();
    if (answer) answer(true);
  }

  void Arm() {
    if (timer_ == nullptr) return;
    std::optional<TimePoint> next;
    const auto at = [&next](TimePoint point) { next = std::min(next.value_or(point), point); };
    {
      const std::lock_guard lock(mutex_);
      for (const Asked& asked : asked_) {
        if (asked.answer) at(asked.by);
      }
      if (!asked_.empty() && !asked_.front().is_slow_told) {
        at(asked_.front().since + options_.slow_after);
      }
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

  void Check() {
    const TimePoint now = SteadyNow();
    std::string slow;
    std::vector<std::function<void(bool)>> late;
    {
      const std::lock_guard lock(mutex_);
      if (!asked_.empty() && !asked_.front().is_slow_told &&
          asked_.front().since + options_.slow_after <= now) {
        asked_.front().is_slow_told = true;
        slow = touched_.empty() ? asked_.front().file : touched_;
      }
      for (Asked& asked : asked_) {
        if (asked.answer && asked.by <= now) late.push_back(std::exchange(asked.answer, nullptr));
      }
      std::erase_if(asked_, [](const Asked& asked) { return !asked.answer && !asked.has_begun; });
    }
    if (!slow.empty() && options_.on_slow) options_.on_slow(slow);
    Arm();
    for (const auto& answer : late) answer(false);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  asio::io_context* io_;  // null: stopped
  std::deque<Asked> asked_;
  bool is_working_ = false;
  std::string touched_;  // by what is being done

  const Options options_;
  std::unique_ptr<asio::steady_timer> timer_;
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
