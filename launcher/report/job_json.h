// The record of the job as JSON, for programs: the report file, and the events.
#ifndef DDPRUN_LAUNCHER_REPORT_JOB_JSON_H_
#define DDPRUN_LAUNCHER_REPORT_JOB_JSON_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "launcher/report/job_record.h"

namespace ddprun::launcher {

struct TimerRequest;

// --report_file: the end of the job; docs/reference/report-file.md has the fields. Indented, with a
// newline at its end. Bytes of workers that are not UTF-8 become U+FFFD.
std::string RenderReportFile(const JobRecord& record);

// --event_log_handler: the life of the workers, an event a line, in torchrun's format.
class StatusEvents {
 public:
  using Emit = std::function<void(const std::string& line)>;

  // An empty `emit`: nobody wants events, and every call returns at once. `record` is borrowed.
  StatusEvents(const JobRecord& record, Emit emit) : record_(record), emit_(std::move(emit)) {}

  // The node has its place in a round, and with it its workers' ranks, `waited_ms` after it asked
  // for one.
  void RoundFormed(int64_t unix_ms, double waited_ms);
  // It has waited for one, and will not get it. RoundFormed says that it has waited by itself.
  void Waited(int64_t unix_ms, double waited_ms);
  void WorkerRuns(const WorkerRecord& worker, int64_t unix_ms);
  // How each worker of the last round ended, and the agent.
  void JobEnded(int64_t unix_ms);
  // A worker's timer has expired; `is_kill`: its process was signalled for it.
  void TimerEvent(const TimerRequest& timer, bool is_kill, int64_t unix_ms);

 private:
  struct Event;
  void Write(const Event& event, int64_t unix_ms);

  const JobRecord& record_;
  const Emit emit_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_JOB_JSON_H_
