// --event_log_handler: the life of the workers as JSON events, a line each, in torchrun's format.
#ifndef DDPRUN_LAUNCHER_REPORT_STATUS_EVENTS_H_
#define DDPRUN_LAUNCHER_REPORT_STATUS_EVENTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "launcher/report/job_record.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

class StatusEvents {
 public:
  // What every event says.
  struct Job {
    std::string run_id;
    std::string role;
    std::string host;
    std::string backend;      // "c10d" or "static"
    std::string entry_point;  // the program
  };
  using Emit = std::function<void(const std::string& line)>;

  // An empty `emit`: nobody wants events, and every call returns at once. `record` is borrowed.
  StatusEvents(Job job, const JobRecord& record, Emit emit);

  // The node has its place in a round, and with it its workers' ranks, `waited_ms` after it asked
  // for one.
  void RoundFormed(int64_t unix_ms, double waited_ms);
  // It will not get one.
  void WaitedInVain(int64_t unix_ms, double waited_ms);
  void WorkerRuns(const WorkerRecord& worker, int64_t unix_ms);
  // How each worker of the last round ended, and the agent.
  void JobEnded(int64_t unix_ms);
  // An event of a worker's timer: torchrun's names. `details` are added to the metadata.
  struct Timer {
    std::string name;
    int pid = 0;
    std::string scope;
    double expiration_time = 0;
    int signal = 0;
  };
  void TimerEvent(const Timer& timer, int64_t unix_ms);

 private:
  struct Event;
  void Waited(int64_t unix_ms, double waited_ms);
  void Write(const Event& event, int64_t unix_ms);

  const Job job_;
  const JobRecord& record_;
  const Emit emit_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_STATUS_EVENTS_H_
