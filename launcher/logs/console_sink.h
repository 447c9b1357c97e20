// Our stdout or stderr, written without ever waiting for its reader.
#ifndef DDPRUN_LAUNCHER_LOGS_CONSOLE_SINK_H_
#define DDPRUN_LAUNCHER_LOGS_CONSOLE_SINK_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// A bounded queue in front of a terminal, pipe, socket or file. One thread uses it.
//
// A reader that is merely slow should lose nothing, one that has stopped must not stop a worker.
// So from kHighWater on the sources are asked to wait (their pipes hold another 1 MiB each), but
// for kPatience at most; then the console counts as stalled, sources go on, and what exceeds
// kCapacity is dropped in whole lines and counted, until the queue is below kHighWater again. What
// we say ourselves has kReserve beyond that: the report of a failure is no less wanted because the
// workers wrote much before it.
class ConsoleSink {
 public:
  static constexpr size_t kCapacity = 1024 * 1024;
  static constexpr size_t kReserve = 256 * 1024;
  static constexpr size_t kHighWater = 256 * 1024;
  static constexpr Duration kPatience = std::chrono::milliseconds(200);

  // How one source's bytes are being passed on.
  struct Cursor {
    bool is_skipping = false;  // inside a line that is being dropped
  };

  // `fd` stays the caller's and open, its flags are not touched: other processes share them.
  explicit ConsoleSink(int fd);

  // Queues prefix, text and a newline, or drops and counts the line. Of the text, the first `shown`
  // bytes were queued by `source` with AppendUnfinished: the rest goes on where they stand, else it
  // is a line of its own.
  void AppendLine(std::string_view prefix, std::string_view text, std::string_view suffix,
                  uint64_t source = 0, size_t shown = 0);
  // Queues a part of a line of `source` (not 0): it begins with the prefix, or goes on where the
  // part before stands. False: no room, and nothing is queued.
  bool AppendUnfinished(uint64_t source, std::string_view prefix, std::string_view text);
  // Ends the line that stands unfinished; true: there was one. What any other source appends does
  // so, too.
  bool EndLine();
  // Queues bytes as they are; what does not fit is dropped in whole lines.
  void AppendRaw(Cursor& cursor, std::string_view bytes);
  // Queues a message of our own, on a line of its own, or drops it and counts it as one line.
  void AppendMessage(std::string_view text);

  // Writes what the other side takes, and judges whether it is stalled.
  void Flush(TimePoint now);

  bool should_wait() const { return !is_stalled_ && queued() > kHighWater; }
  // When should_wait() will end by itself; TimePoint::max(): it does not.
  TimePoint NextDeadline() const;
  size_t queued() const { return queue_.size() - head_; }
  // For epoll: becomes writable when Flush can go on; -1: never has to wait.
  int poll_fd() const { return can_block() ? fd_.get() : -1; }
  uint64_t dropped_lines() const { return dropped_lines_; }
  // Of those, what a file or device refused (a full disk), and its last errno. They cannot be told
  // of where they are missing.
  uint64_t refused_lines() const { return refused_lines_; }
  int last_error() const { return last_error_; }
  // The errno by which the reader turned out to have gone, asked for the first time since; else 0.
  int TakeBreak() { return std::exchange(untold_break_, 0); }

 private:
  enum class Kind { kPlain, kSocket, kNonBlocking, kPolled };

  bool can_block() const { return kind_ != Kind::kPlain; }
  void WriteQueue();
  ssize_t WriteSome();
  void DropQueue(int error);
  void Append(std::string_view bytes);
  bool has_room_for(size_t bytes) const { return queued() + bytes <= kCapacity; }

  UniqueFd fd_;  // our own description where the kernel gives one, else a duplicate
  Kind kind_ = Kind::kPlain;
  bool is_broken_ = false;  // nobody will ever read
  int untold_break_ = 0;

  std::string queue_;
  size_t head_ = 0;           // what is before was written
  uint64_t unfinished_ = 0;   // the source whose unfinished line is last in it; 0: none
  char last_byte_ = '\n';     // that was queued
  char last_written_ = '\n';  // that the other side took
  bool is_torn_ = false;      // the rest of a line was dropped: what comes next begins a new one
  bool begins_with_repair_ = false;  // the queue's first byte is the newline for that
  bool is_stalled_ = false;
  std::optional<TimePoint> full_since_;
  uint64_t dropped_lines_ = 0;
  uint64_t refused_lines_ = 0;
  int last_error_ = 0;
  uint64_t announced_lines_ = 0;  // of those, what the reader was told of
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_CONSOLE_SINK_H_
