// --event_file: from what the agent lives through to lines in a file.
#ifndef DDPRUN_LAUNCHER_REPORT_EVENT_WRITER_H_
#define DDPRUN_LAUNCHER_REPORT_EVENT_WRITER_H_

#include <functional>
#include <string>

#include "launcher/agent/file_thread.h"
#include "launcher/report/event_file.h"
#include "launcher/report/event_log.h"

namespace ddprun::launcher {

// The log, the file and the thread that writes it: one that hangs holds up nothing else.
class EventWriter {
 public:
  EventWriter(boost::asio::io_context& io, JobRecord::Part part, const std::string& path,
              std::function<void(const std::string& text)> warn);
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  EventLog& log() { return log_; }
  // `done` follows within 10 s, when all is written or lost.
  void Flush(std::function<void()> done) { file_.Flush(std::move(done)); }
  bool is_idle() const { return thread_.is_idle(); }

 private:
  FileThread thread_;
  EventFile file_;
  EventLog log_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_EVENT_WRITER_H_
