// What a coordinator leaves to the one that is started after it, kept on disk.
#ifndef DDPRUN_RENDEZVOUS_SERVER_JOB_FILE_H_
#define DDPRUN_RENDEZVOUS_SERVER_JOB_FILE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/mailbox.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"
#include "rendezvous/server/job_memory.h"

namespace ddprun::rendezvous {

// Takes the next epoch and keeps it in `run_dir`/job (written beside it, fsync'ed if there was an
// intact one, renamed) before returning. Instance, restart count and verdict are those of the file.
// A first, lost or damaged file gives a new instance and an epoch from the time of day in
// microseconds: starts are never a microsecond apart, so this is above every epoch that was counted
// up from an earlier time. Where the clock went back meanwhile, joins of re-attaching agents raise
// the epoch (the machine). Makes `run_dir` when missing. An error names the file that could not be
// written.
absl::StatusOr<Beginning> BeginJob(const std::string& run_dir);
// A beginning that remembers nothing.
Beginning BeginAnew();
absl::Status WriteJob(const std::string& run_dir, const Record& record);
// The job is over: no coordinator of it will be started again. Removes the file, and `run_dir`
// unless something else is in it. What cannot be removed stays, which harms nobody.
// REQUIRES: the caller still holds the port, or alone the lock on the folder, so that no
// coordinator after it has written there.
void ForgetJob(const std::string& run_dir);

// A record as text, wherever it is kept. nullopt: what is there is not exactly what would have been
// written.
std::string EncodeRecord(const Record& record);
std::optional<Record> DecodeRecord(const std::string& text);
// What a new coordinator knows by `record` of an earlier one's, but for the epoch.
void Recall(const Record& record, Beginning& beginning);

// Does all of this on a thread of its own: a file system that does not answer must not hold up the
// coordinator, and says so on another one. The destructor waits a second at most for what was asked
// for, and half a second for what is said. Calls from any thread.
class JobFile final : public JobMemory {
 public:
  static constexpr Duration kSilentAfter = std::chrono::seconds(5);

  // RESOURCE_EXHAUSTED: the system has no thread left. `clock` outlives its threads. `on_failure`,
  // which may be empty, is told what keeps a record from the disk, once until one gets there again:
  // an error, or, by Look, that the disk has not answered for kSilentAfter. By Forget it is told
  // that the record stays, as the disk does not answer. It is told on threads that may outlive this
  // object.
  static absl::StatusOr<std::unique_ptr<JobFile>> Open(
      std::string run_dir, const Clock& clock,
      std::function<void(const std::string&)> on_failure = {});
  // BeginJob; then removes what coordinators that were killed an hour ago and more have left beside
  // `run_dir`, files named "job" in folders. A file that does not answer within `timeout` is as
  // good as none: agents bring back what they know.
  absl::StatusOr<Beginning> Begin(uint16_t port, Duration timeout) override;
  void Write(const Record& record, std::function<void()> on_written) override;
  void Look(TimePoint now) override;
  // ForgetJob, after all that was asked for. The disk has three quarters of the time at least.
  void Forget(Duration timeout) override;
  // Renames the file to "left", with the time until which nodes wait. A coordinator takes it up
  // until then. Later this job is over, whoever may have the port and the id.
  void Leave(Duration timeout, std::optional<Duration> nodes_wait) override;

 private:
  struct Next;  // to be written; shared with the thread

  JobFile(std::string run_dir, const Clock& clock,
          std::function<void(const std::string&)> on_failure);

  void Tell(std::string text) const;

  const std::string run_dir_;
  const Clock& clock_;
  const std::shared_ptr<Next> next_;
  HelperThread thread_;
  const HelperThread teller_;  // of that the first one hangs
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_JOB_FILE_H_
