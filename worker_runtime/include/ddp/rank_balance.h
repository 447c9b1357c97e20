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

// One rank's steps: means.
struct RankSteps {
  double step_ms = 0;
  // Communication that backward did not hide, waiting for others included; 0 where not all ranks
  // know theirs (StepMetrics::knows_communication).
  double exposed_ms = 0;
  // How long a thread was ready to run and had no core: that which makes the steps, and all others
  // of the process together, of which the communicator's is one. Below 0: the kernel does not tell
  // (/proc/self/task/*/schedstat).
  double step_wait_ms = -1;
  double communication_wait_ms = -1;
  double cpu_utilisation = 0;  // of its share of the cores; above 1 where it uses others' shares
  // Share of the time, 0 to 1, in which its GPU ran a kernel of any process; of the last 16 s at
  // most. Below 0: it has no GPU, or the driver does not tell, as of a part of a GPU (MIG).
  double gpu_utilisation = -1;
  int cores = 0;           // that it may use, or a rank that shares one of them may; 0: unknown
  int ranks_on_cores = 1;  // ranks that share them
  int hosts = 1;           // of all ranks; a container with a network of its own is one

  // What this rank takes before it waits for others: a slow rank has much of it, and the others
  // have as much more to wait for.
  double self_ms() const { return step_ms - exposed_ms; }
  bool is_short_of_cores() const { return cores > 0 && ranks_on_cores > cores; }
};

// A rank is slow when its self time is above the median of all by more than this share of the step:
// so much the job would gain if it were as fast, and StepMetrics takes a tenth for good. Ranks that
// share cores take turns on them, by which their self times differ by more: there the time that its
// steps waited for a core does not count for a rank, and does for the median.
inline constexpr double kSlowRankMargin = 0.10;

// In ascending order; none in a group of one, or where all are alike.
std::vector<int> SlowRanks(std::span<const RankSteps> ranks);

// "rank 1 is slow: it takes 31.00 ms a step by itself, the others 12.00 ms; they wait for it", with
// ", up to 9.00 ms of it waiting for a CPU core" where another program has taken its core for so
// long. Empty where none is slow.
std::string SlowRankText(std::span<const RankSteps> ranks);

// One sentence, empty where there is nothing to say: of the slow ranks; else, when `rank` has more
// exposed communication than StepMetrics::kExposedShareWarning, how much of that is waiting for a
// core where cores are short or others use them, and otherwise `network_advice`. How much is what
// the communicators' threads of all ranks waited for one. It is the most that it can be, as some of
// that may lie beside backward; what a rank is late because its steps waited comes on top of it.
std::string SpeedAdvice(std::span<const RankSteps> ranks, int rank,
                        const std::string& network_advice);

// Measures what this process has of the CPU while steps run, and tells all ranks what all have
// measured. Used by one thread; borrows the communicator.
class RankBalance {
 public:
  explicit RankBalance(Communicator& communicator) : communicator_(communicator) {}

  // Around the steps of an epoch, any number of times: what lies between counts.
  void Begin();
  void End();
  // What was measured is forgotten.
  void Reset() {
    sums_ = {};
    since_.reset();
  }

  // Collective, one small all-gather in host memory: not for every step. Every rank's steps by
  // rank, from its metrics and what lay between Begin() and End(). Errors are the communicator's.
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
