// The thread that writes the log files of a node, whose disk may hang in any call.
#ifndef DDPRUN_LAUNCHER_LOGS_LOG_FILES_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_FILES_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "launcher/logs/file_sink.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// A bounded queue in front of all files. A disk that is merely slow loses nothing: Write waits for
// room. One that has completed no call for kPatience does not answer: what has no room then is
// dropped in whole lines and counted, until there is room again.
//
// Write and Close are called on one thread, the queries on any.
class LogFiles {
 public:
  static constexpr size_t kCapacity = 4 * 1024 * 1024;
  static constexpr Duration kPatience = std::chrono::seconds(5);

  struct File {
    explicit File(FileSink of_thread) : path(of_thread.path()), sink(std::move(of_thread)) {}
    const std::string path;
    FileSink sink;                   // the thread's
    std::optional<bool> gap_so_far;  // the writer's: Task::gap of the next
  };
  struct Losses {
    uint64_t lines = 0;
    int error = 0;  // the last one; ETIMEDOUT: the file system does not answer
  };
  struct Break {
    std::string path;
    int error = 0;  // 0: there is none
  };

  // `wake` is called on the thread: a break can be taken, or is_idle() has said no and would say
  // yes now.
  explicit LogFiles(std::function<void()> wake) : wake_(std::move(wake)) {}
  // REQUIRES: End() has returned, or Start() has not succeeded.
  ~LogFiles();
  LogFiles(const LogFiles&) = delete;
  LogFiles& operator=(const LogFiles&) = delete;

  // False: the system has no thread left. `hold_for_test` is called before a file is touched.
  bool Start(std::function<void()> hold_for_test);
  // Returns when all is written, so never where a file does not answer.
  void End();

  void Write(const std::shared_ptr<File>& file, std::string_view bytes);
  // The stream is over. The file is closed behind what was written to it.
  void Close(std::shared_ptr<File> file);

  bool is_idle();
  Losses losses() const;
  // The first file that took less than it got, once for each kind of error.
  Break TakeBreak();
  // The file in which the thread has been for `at_least` now; "": none.
  std::string busy_file(Duration at_least) const;
  // When busy_file(kPatience) will name the one that is being written; max(): never.
  TimePoint overdue_at() const;

 private:
  struct Task {
    std::shared_ptr<File> file;
    std::optional<bool> gap;  // lines in front of `bytes` were dropped; true: the last one goes on
    std::string bytes;
    bool is_last = false;
  };

  // REQUIRES: mutex_ is held, here and below.
  void Push(Task task);
  void NoteLoss(const File& file, uint64_t lines, int error);
  void NoteProgress();

  void Run();
  void Do(Task& task);

  const std::function<void()> wake_;
  std::function<void()> hold_for_test_;

  // Under mutex_.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first is the thread's
  size_t queued_bytes_ = 0;
  std::string busy_file_;   // of the first
  TimePoint busy_since_{};  // nothing was completed since
  bool is_idle_awaited_ = false;
  bool is_ending_ = false;
  Losses losses_;
  std::set<int> errors_;             // all kinds so far
  std::deque<Break> untold_breaks_;  // of these

  std::thread thread_;
};

// What a message says of an error of Losses or Break.
std::string FileErrorText(int error);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_FILES_H_
