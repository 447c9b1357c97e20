// What is told of a job in --event_file, as values. [pure]
#ifndef DDPRUN_LAUNCHER_REPORT_JOB_EVENT_H_
#define DDPRUN_LAUNCHER_REPORT_JOB_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "launcher/agent/agent_core.h"
#include "launcher/status/snapshot.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// What every line begins with.
struct EventHead {
  int64_t unix_ms = 0;
  std::string run_id{};
  std::string node{};     // its host
  std::string node_id{};  // of its agent
  uint64_t round = 0;     // 0: none yet
  uint64_t number = 0;    // of the line, from 1: one that is missing was lost
};

struct JobStartEvent {
  std::string program{};
  int min_nodes = 1, max_nodes = 1;
  int workers = 1;  // of this node
  int max_restarts = 0;
};
struct WaitingEvent {
  std::string reason{};
};
// The workers of the round before are started anew.
struct RestartEvent {
  bool is_charged = false;  // for a failure; else the nodes have changed
  int restart_count = 0, max_restarts = 0;
  std::string reason{};  // why the round before ended
};
struct RoundStartEvent {
  rendezvous::Assignment assignment{};
  int workers = 1;                     // of this node
  std::optional<double> rendezvous_s;  // since this node asked for its place
};
struct WorkersStartedEvent {
  int workers = 1;
  double start_s = 0;  // since the round's start
};
struct FirstStepEvent {
  double first_step_s = 0;  // likewise
};
struct FailureEvent {
  rendezvous::FailureReport report{};
};
// A hang and a straggler have names of their own; the others are problems of some kind.
struct ProblemEvent {
  Problem problem{};
};
struct ProblemEndEvent {
  Problem problem{};  // as it was when it began
  double lasted_s = 0;
};
struct StopAskedEvent {
  enum class How {
    kAtOnce,
    kKill,       // a further signal, or `ddprun stop --now`
    kAfterStep,  // the workers save and end
  };
  How how = How::kAtOnce;
  std::string why{};  // "SIGTERM", "ddprun stop on node a"
};
// A health check of this node, where its result is another one than before.
struct HealthEvent {
  rendezvous::HealthReport report{};
};
struct RoundEndEvent {
  std::string reason{};
  double lasted_s = 0;
  int succeeded = 0, failed = 0, stopped = 0;  // workers of this node
};
struct JobEndEvent {
  EndJob end{};
  int restart_count = 0;
  double lasted_s = 0;
  std::optional<double> effective_share{};
};

using JobEvent =
    std::variant<JobStartEvent, WaitingEvent, RestartEvent, RoundStartEvent, WorkersStartedEvent,
                 FirstStepEvent, FailureEvent, ProblemEvent, ProblemEndEvent, StopAskedEvent,
                 HealthEvent, RoundEndEvent, JobEndEvent>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_JOB_EVENT_H_
