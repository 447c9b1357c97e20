// Which rank the others wait for, and how much of the waiting is for a CPU core.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_RANK_BALANCE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_RANK_BALANCE_H_

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/step_metrics.h"

namespace ddp {

// One rank's steps, as means.
struct RankSteps {
  double step_ms = 0;
  // Communication that backward did not hide, including waiting for others. 0 if not all ranks have
  // measured theirs (StepMetrics::knows_communication).
  double exposed_ms = 0;
  // How long a thread was ready to run and had no core. `step_wait_ms` is for the thread that makes
  // the steps. `communication_wait_ms` is for all other threads of the process together, among them
  // the communicator's. Below 0: the kernel does not report it (/proc/self/task/*/schedstat).
  double step_wait_ms = -1;
  double communication_wait_ms = -1;
  double cpu_utilisation = 0;  // of its share of the cores; above 1 if it uses others' shares
  // The share of the time, 0 to 1, in which its GPU ran a kernel of any process, over the last 16 s
  // at most. Below 0: it has no GPU, or the driver does not report it, as for a part of a GPU
  // (MIG).
  double gpu_utilisation = -1;
  int cores = 0;           // which it, or a rank that shares one, may use; 0: unknown
  int ranks_on_cores = 1;  // ranks that share them
  int hosts = 1;           // of all ranks; a container with its own network counts as one

  // The time of this rank before it waits for others. A slow rank has much of it, and the others
  // then wait that much longer.
  double self_ms() const { return step_ms - exposed_ms; }
  bool is_short_of_cores() const { return cores > 0 && ranks_on_cores > cores; }
};

// A rank is slow if its self time is above the median of all ranks by more than this share of the
// step. The job would gain that much if the rank were as fast. StepMetrics also uses a tenth as its
// limit. Ranks that share cores take turns on them, so their self times differ more. For such a
// rank, the time that its steps waited for a core does not count. It does count for the median.
inline constexpr double kSlowRankMargin = 0.10;

// The slow ranks, in ascending order. Empty in a group of one, or if all ranks are alike.
std::vector<int> SlowRanks(std::span<const RankSteps> ranks);

// Names the slow ranks: "rank 1 is slow: it takes 31.00 ms a step by itself, the others 12.00 ms;
// they wait for it". If another program has taken the rank's core for that long, the text also has
// ", up to 9.00 ms of it waiting for a CPU core". Empty if no rank is slow.
std::string SlowRankText(std::span<const RankSteps> ranks);

// One sentence of advice, or an empty text. It is about the slow ranks, if there are any. Otherwise
// it depends on the exposed communication of `rank`. If that is above
// StepMetrics::kExposedShareWarning, the sentence says how much of it is waiting for a core. That
// applies if cores are short or other programs use them. Otherwise the sentence is
// `network_advice`.
//
// The amount is what the communicators' threads of all ranks waited for a core. It is an upper
// limit, because some of it may overlap backward. A rank's delay because its own steps waited comes
// in addition.
std::string SpeedAdvice(std::span<const RankSteps> ranks, int rank,
                        const std::string& network_advice);

// Measures what this process gets of the CPU during steps, and gives all ranks what all have
// measured. One thread uses it. It borrows the communicator.
class RankBalance {
 public:
  explicit RankBalance(Communicator& communicator) : communicator_(communicator) {}

  // Call them around the steps of an epoch, any number of times. What lies between them counts.
  void Begin();
  void End();
  // Forgets what was measured.
  void Reset() {
    sums_ = {};
    since_.reset();
  }

  // Returns every rank's steps, by rank, from its metrics and what lay between Begin() and End().
  // Collective: one small all-gather in host memory, so not for every step. Errors are the
  // communicator's.
  absl::StatusOr<std::vector<RankSteps>> Gather(const StepMetrics& metrics);

 private:
  struct Usage {
    std::chrono::nanoseconds wall{0}, cpu{0}, step_wait{0}, communication_wait{0};
    bool knows_waits = true;
  };
  static Usage Now();

  Communicator& communicator_;
  std::optional<std::chrono::system_clock::time_point> since_;  // none: nothing is measured
  Usage begin_;
  Usage sums_;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_RANK_BALANCE_H_
