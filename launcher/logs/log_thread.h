// The thread behind LogRouter: one epoll loop over the workers' channels and the two consoles.
#ifndef DDPRUN_LAUNCHER_LOGS_LOG_THREAD_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_THREAD_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/logs/console_sink.h"
#include "launcher/logs/lines.h"
#include "launcher/logs/log_files.h"
#include "launcher/logs/log_router.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// One channel and where its bytes go.
struct StreamPlan {
  enum class Console { kNone, kRaw, kLines };

  int local_rank = 0;
  bool is_stderr = false;
  UniqueFd read_end;
  bool is_terminal = false;
  std::shared_ptr<LogFiles::File> file;  // null: none
  Console console = Console::kNone;
  std::string prefix;  // of lines
};

// Public methods may be called from any thread, Start and End from one; everything else runs on the
// log thread.
class LogThread {
 public:
  static constexpr int kMaxLinesSaid = 1000;
  static constexpr int kMaxLinesOffered = 500;  // the other half is for what the user must see

  // `hold_for_test`: LogOptions.
  static absl::StatusOr<std::unique_ptr<LogThread>> Start(int stdout_fd, int stderr_fd,
                                                          std::function<void()> hold_for_test = {});
  // REQUIRES: End has returned true.
  ~LogThread();
  LogThread(const LogThread&) = delete;
  LogThread& operator=(const LogThread&) = delete;

  // Writes out what can be written without waiting, and ends the thread. False: it has not ended
  // within `timeout`, because a file does not answer (busy_file). It uses this object then for as
  // long as it lives, so the object must be left to it.
  [[nodiscard]] bool End(Duration timeout);
  // As LogFiles'.
  std::string busy_file(Duration at_least) const { return files_.busy_file(at_least); }

  void Add(StreamPlan plan);
  // From here on, lines of stdout (or stderr) that go to the console and pass `filter` go to `file`
  // as well, until CloseAll.
  void SetCopies(bool is_stderr, LineFilter filter, std::shared_ptr<LogFiles::File> file);
  // Reads every channel empty, closes it, and forgets the tails.
  void CloseAll();
  std::string Tail(int local_rank, size_t max_lines, Duration timeout);
  // As LogRouter's.
  RecentOutput Recent(int local_rank, uint64_t from, Duration timeout,
                      uint64_t most = TailBuffer::kMaxBytes);
  bool Drain(Duration timeout);
  // False: as many lines wait already. The log thread waits for a slow disk, or a library says more
  // than a console takes.
  bool Say(const std::string& line, int max_waiting = kMaxLinesSaid);
  LogLosses losses() const;
  TimePoint last_output_at() const { return last_output_at_.load(std::memory_order_relaxed); }

 private:
  struct Copies {
    LineFilter filter;
    std::shared_ptr<LogFiles::File> file;
  };
  // Something that the caller waits for: asked again after every turn of the loop.
  struct Question {
    std::function<bool()> is_answered;
    std::function<std::string()> answer;
    TimePoint deadline;
    std::shared_ptr<std::promise<std::string>> reply;
  };
  struct Output {
    explicit Output(int fd) : sink(fd) {}
    ConsoleSink sink;
    bool is_watched = false;   // epoll tells when it takes more
    Output* sharer = nullptr;  // the other one, where both write to one terminal, pipe or file
  };
  struct Stream {
    uint64_t id;
    StreamPlan plan;
    Output* output;  // nullptr: no console
    size_t read_limit;
    LineSplitter splitter = {};
    ConsoleSink::Cursor cursor = {};
    bool is_paused = false;  // out of epoll until the console takes more
    bool was_empty = false;  // a read found nothing (more) since this was last cleared
  };

  LogThread(int stdout_fd, int stderr_fd);
  void Post(std::function<void()> command);
  std::string Ask(Question question, Duration timeout);

  void Run();
  int WaitMilliseconds() const;
  void RunCommands();
  void Open(StreamPlan plan);
  // Reads while there is something, for a bounded time; the stream may be gone afterwards.
  void Read(Stream& stream);
  void ReadAllOf(const Output& output);
  // One read; false: nothing there now, or the stream has ended and is gone.
  bool ReadOnce(Stream& stream);
  void Deliver(Stream& stream, std::string_view bytes);
  void DeliverLine(Stream& stream, const LineSplitter::Line& line);
  // What their writers have not ended and is due (LineSplitter::ShowAt).
  void ShowUnfinished(TimePoint now);
  // The sink, for what no unfinished line of the other console stands before any more.
  static ConsoleSink& SinkOf(Output& output);
  void FlushCopies(bool is_stderr);
  // When it happens, and once for each kind of error; that a file does not answer, once.
  void TellOfFiles();
  void Close(Stream& stream);
  void CloseStreams();
  bool MustWait(Stream& stream);
  void Settle();
  void Watch(Output& output, uint64_t id);
  void AnswerQuestions();
  void CountLosses();
  Stream* FindStderr(int local_rank);

  UniqueFd epoll_;
  UniqueFd wake_;

  // Under mutex_, between the caller and the log thread.
  mutable std::mutex mutex_;
  std::vector<std::function<void()>> commands_;
  int lines_said_ = 0;  // among them
  LogLosses losses_;    // of the consoles
  std::atomic<TimePoint> last_output_at_ = SteadyNow();

  // Of the log thread.
  bool is_stopping_ = false;
  Output stdout_;
  Output stderr_;
  std::map<uint64_t, Stream> streams_;  // by the number epoll knows them by
  uint64_t next_id_;
  TimePoint show_at_ = TimePoint::max();  // when ShowUnfinished has something to do
  bool has_told_busy_ = false;
  std::map<int, TimePoint> written_at_;  // what came last, by local rank
  std::map<int, TailBuffer> tails_;      // of stderr, by local rank
  std::map<int, TailBuffer> outputs_;    // of both streams, of ranks whose stdout passes here
  std::vector<Question> questions_;
  std::array<std::optional<Copies>, 2> copies_;  // of stdout and stderr
  std::vector<char> buffer_;

  LogFiles files_;
  std::promise<void> ended_;
  std::thread thread_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_THREAD_H_
