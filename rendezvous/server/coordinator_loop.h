// The coordinator's thread: takes events from its inbox, steps the machine, carries out actions.
#ifndef DDPRUN_RENDEZVOUS_SERVER_COORDINATOR_LOOP_H_
#define DDPRUN_RENDEZVOUS_SERVER_COORDINATOR_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/server/job_file.h"
#include "rendezvous/server/session.h"

namespace ddprun::rendezvous {

class CoordinatorLoop final : public Inbox, public std::enable_shared_from_this<CoordinatorLoop> {
 public:
  // More sessions than this are refused: every node needs one.
  static constexpr size_t kMaxSessions = 16384;
  static constexpr Duration kMaxTickInterval = std::chrono::seconds(1);

  // As in Coordinator::Options.
  struct Hooks {
    std::function<void(const std::string&)> log_step;
    std::function<void()> on_finished;
  };
  // `file`: where records go; null: nowhere.  REQUIRES: the loop is owned by a shared_ptr.
  CoordinatorLoop(const std::optional<Policy>& policy, const Beginning& beginning,
                  std::shared_ptr<JobFile> file, Hooks hooks);
  ~CoordinatorLoop() override;  // stops

  // RESOURCE_EXHAUSTED: the system has no thread for it.
  absl::Status Start();

  std::optional<SessionId> Open(std::shared_ptr<Session> session) override;
  void Post(Event event) override;

  bool WaitFinished(Duration timeout);
  // How the job ended, from the start where an earlier coordinator wrote it down; else empty until
  // it is finished.
  std::optional<Verdict> verdict() const;
  // A node has joined, or the policy was given.
  bool has_job() const;
  // A round has begun, here or under an earlier coordinator of the job.
  bool has_begun() const;
  // The only run that is served; empty until a node gives it.
  std::string run_id() const;
  // Closes every session and ends the thread. Idempotent; not from the thread itself.
  void Stop();

 private:
  void Run();
  // Takes what has arrived; waits for it at most until the next deadline.
  std::deque<Event> WaitForEvents();
  TimePoint NextWakeUp() const;
  void Apply(const Event& event);
  // One step of the machine, and what it asks for.
  void StepMachine(TimePoint now, const Event& event);
  void TickSessions();
  Duration tick_interval() const;
  void CarryOut(TimePoint now, const Action& action);
  // The job, epoch and round that every message carries.
  Stamp current() const { return machine_.current(); }
  std::shared_ptr<Session> Find(SessionId id);
  void Forget(SessionId id);

  void WriteRecord(const Record& record);

  const std::shared_ptr<JobFile> file_;
  const Hooks hooks_;

  // The thread's own.
  RendezvousMachine machine_;
  TimePoint next_tick_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable finished_;
  std::deque<Event> events_;
  std::map<SessionId, std::shared_ptr<Session>> sessions_;
  uint64_t last_session_ = 0;
  bool is_finished_ = false;
  std::optional<Verdict> verdict_;
  bool has_job_ = false;
  bool has_begun_ = false;
  std::string run_id_;
  bool is_stopping_ = false;

  std::mutex stop_mutex_;  // held while joining, so that two Stops are safe
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_COORDINATOR_LOOP_H_
