// Work on files that must not hold up the agent: a network file system may hang for ever.
#ifndef DDPRUN_LAUNCHER_AGENT_FILE_THREAD_H_
#define DDPRUN_LAUNCHER_AGENT_FILE_THREAD_H_

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/base/time.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::launcher {

// One thread that works through what it is asked, in that order. The io_context's thread asks and
// hears the answers; it never waits. A call that hangs keeps what stands behind it waiting, and
// nothing else: each question has a time of its own after which it is answered all the same.
class FileThread {
 public:
  // The first question starts the thread. Where the system has none left, the io_context's does the
  // work. `on_slow` is told once of each piece of work that lasts for `slow_after`, with the file
  // that it touches.
  explicit FileThread(boost::asio::io_context& io,
                      std::function<void(const std::string& file)> on_slow = {},
                      Duration slow_after = std::chrono::seconds(5));
  // Starts the thread now: there may be none left when the first question comes.
  void Start();
  // Whether there is one: not before the start, nor where the system had none left.
  bool has_thread() const { return thread_.joinable(); }
  // Joins the thread, or leaves it behind with the call that it hangs in.  REQUIRES for the latter:
  // the work owns what it touches, or the process ends without destroying it.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  // `work` runs on the thread; `answer` gets its result on the io_context's, exactly once and never
  // from inside Ask. nullopt: it was not done within `timeout`; what has not begun by then never
  // does, and a late result is dropped. `name` is for tests, `file` what a user is told to look at;
  // "": the name.
  template <typename Result>
  void Ask(const std::string& name, const std::string& file, Duration timeout,
           std::function<Result()> work, std::function<void(std::optional<Result>)> answer) {
    const auto result = std::make_shared<std::optional<Result>>();
    Queue(name,
          {.file = file.empty() ? name : file,
           .answer = [result, answer = std::move(answer)](
                         bool is_done) { answer(is_done ? std::move(*result) : std::nullopt); },
           .timer = boost::asio::steady_timer(io_, timeout)},
          [result, work = std::move(work)] { result->emplace(work()); });
  }

  // Called by the work: what it touches next, in place of `file`.
  void Touch(const std::string& file);

  // Nothing is asked and nothing hangs.
  bool is_idle() const;

 private:
  struct Shared;
  struct Asked {
    std::string file;
    std::function<void(bool is_done)> answer;  // null: given, and its work hangs
    boost::asio::steady_timer timer;
  };
  void Queue(const std::string& name, Asked asked, std::function<void()> work);
  void GiveUp(uint64_t id);
  void Finish(uint64_t id);
  void Forget(uint64_t id);
  void WatchFirst();

  boost::asio::io_context& io_;
  const std::function<void(const std::string& file)> on_slow_;
  const Duration slow_after_;
  std::map<uint64_t, Asked> asked_;  // the first is being done
  uint64_t next_id_ = 0;
  boost::asio::steady_timer slow_timer_;  // of the first
  const std::shared_ptr<Shared> shared_;  // the thread's too
  bool has_started_ = false;
  std::thread thread_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_FILE_THREAD_H_
