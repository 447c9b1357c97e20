// Where the time of a job goes. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_TIME_LEDGER_H_
#define DDPRUN_LAUNCHER_STATUS_TIME_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Fed with judged views of one job, it adds up seconds: each belongs to what the job was seen to
// do. Only what it has seen counts, and before its first view what that says of a job that begins.
class TimeLedger {
 public:
  // REQUIRES: now never decreases; job.problems are filled in.
  void Add(TimePoint now, const JobView& job);

  // In steps, or running where the program has never said what it does.
  double steps_s() const { return At(kSteps) + At(kUnreported); }
  double start_s() const { return At(kStart); }  // to the first step of all
  // From a failure, or what else ended a round, to the first step of the next one.
  double restart_s() const { return At(kRestart); }
  double checkpoint_s() const { return At(kCheckpoint); }
  double evaluation_s() const { return At(kEvaluation); }
  double stall_s() const { return At(kStall); }  // hangs, and steps that do not advance
  double stop_s() const { return At(kStop); }    // of a round that no other has followed
  double total_s() const;
  // 0 to 1; none where the program does not report, or the job was not seen from its beginning.
  std::optional<double> effective_share() const;

  // "97.1 % of 3 h 12 min spent in steps; start 4 s, restarts 2 min 10 s, checkpoints 3 min 2 s";
  // "spent running" where the program reports no steps. Empty for a job below a minute,
  // and where its beginning was not seen.
  std::string ClosingLine() const;

 private:
  enum Part : size_t {
    kSteps,
    kUnreported,  // runs, and has said nothing in this round: its steps, or its start
    kStart,
    kRestart,
    kCheckpoint,
    kEvaluation,
    kStall,
    kStop,
    kNothing,  // the job has ended
    kPartCount
  };
  double At(Part part) const { return seconds_[part]; }
  void Move(Part from, Part to, double seconds);
  // What the round before took to stop was for another one.
  void BeginRestart();
  void FollowRound(const JobView& job);
  void SetAside(const JobView& job);
  Part PartNow(const JobView& job);
  // How long the job has been in that part, where the view tells. 0: it does not.
  double HeldSeconds(Part part, const JobView& job) const;
  Part Beginning() const { return has_run_ ? kRestart : kStart; }

  std::array<double, kPartCount> seconds_{};
  // In this round, so far as it has been seen; `lately`: without a view between in which none was.
  std::array<double, kPartCount> aside_s_{}, lately_s_{};
  double all_aside_s_ = 0;
  bool is_whole_ = false;  // it has seen the job from its beginning
  std::optional<TimePoint> last_;
  Part part_ = kNothing;  // at the last view
  uint64_t round_ = 0;
  bool is_round_up_ = false;  // it has been seen to run
  bool has_run_ = false;      // a round before this one has
  bool has_stepped_ = false;  // in this round
  bool has_reported_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_TIME_LEDGER_H_
