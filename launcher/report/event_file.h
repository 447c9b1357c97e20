// The file of --event_file, never waited for: lines at its end, each by one write, whole or not.
#ifndef DDPRUN_LAUNCHER_REPORT_EVENT_FILE_H_
#define DDPRUN_LAUNCHER_REPORT_EVENT_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/agent/file_thread.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// The io_context's thread appends and never waits; the file thread opens, writes and closes, so
// that a file that is moved away is made anew. What a full disk or a silent file system does not
// take is counted and gone: nothing is kept back for later.
class EventFile {
 public:
  struct Options {
    std::string path;
    // For what is waiting when its turn comes. A slow disk may take it.
    Duration write_timeout = std::chrono::seconds(5);
  };
  // Lines that wait; more of them are lost.
  static constexpr size_t kMaxWaiting = 1000;

  // `files` is borrowed: a thread of this file's own, since one that hangs would hold up whatever
  // else it is asked. `warn` gets one line, once: with the first that is lost.
  EventFile(Options options, FileThread& files, std::function<void(const std::string&)> warn);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // `line` without a newline.
  void Append(std::string line);
  // `done` is called when all that was appended is written or lost, within twice the timeout and
  // never from inside.  REQUIRES: none is under way.
  void Flush(std::function<void()> done);

  // Lines that are not in the file, as far as is known: what a file system takes later than in time
  // counts, too.
  uint64_t lost() const { return lost_; }

 private:
  void WriteWaiting();
  void Lose(uint64_t count, const std::string& why);

  const Options options_;
  FileThread& files_;
  const std::function<void(const std::string&)> warn_;
  std::vector<std::string> waiting_;
  bool is_writing_ = false;
  std::function<void()> on_flushed_;
  uint64_t lost_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EVENT_FILE_H_
