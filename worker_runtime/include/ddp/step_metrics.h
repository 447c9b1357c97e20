// How fast training runs, and how much of it is spent waiting for other ranks.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_STEP_METRICS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_STEP_METRICS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "ddp/communicator.h"

namespace ddp {

namespace internal {
class Counters;
class DeviceMoment;
}  // namespace internal

// When one reduction happened. All zero before the first.
struct ReductionTimes {
  using TimePoint = std::chrono::steady_clock::time_point;
  TimePoint backward_end;                     // the last gradient was ready
  TimePoint communication_end;                // the last collective ended
  std::chrono::nanoseconds communication{0};  // time with at least one collective under way

  // The communication that backward did not hide: max(0, communication_end - backward_end).
  std::chrono::nanoseconds Exposed() const;
};

// Sums over the steps since construction or Reset(), as this rank sees them. Used by one thread at
// a time. Exposed communication includes waiting for slower ranks.
//
// On a GPU calls return long before their work is done, so a step lasts from what BeginStep() to
// what EndStep() finds on the stream, by events. It counts once the device has told: as a rule when
// the next step ends, and the host never waits for it. Of a host that is more than 64 steps ahead
// some never count.
//
// The launcher is told of every step that counts, and of what was exposed, as if by ReportStep()
// (ddp/progress.h) with numbers from 1 on. Of several StepMetrics one tells: the first that is
// constructed while no other one tells, until it goes. Where the program calls ReportStep() itself,
// its word counts, and only what was exposed is added.
//
// The measure is that of PyTorch's DDP logger: what counts is not how long collectives took but
// how much longer the step was for them.
class StepMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  // Above this share of the step the job wastes more than it should.
  static constexpr double kExposedShareWarning = 0.10;

  // By the host's clock. REQUIRES: world_size >= 1.
  explicit StepMetrics(int world_size);
  // Where the communicator's operations are: on a GPU by events on `stream`, on the CPU by the
  // host's clock. Name the stream on which the steps run: events on another one are passed at once.
  // Borrows the communicator.
  explicit StepMetrics(Communicator& communicator, Stream stream = nullptr);
  ~StepMetrics();
  StepMetrics(const StepMetrics&) = delete;
  StepMetrics& operator=(const StepMetrics&) = delete;

  void BeginStep();
  // `samples` are this rank's; the others are taken to have trained as many. The step ends now.
  void EndStep(int64_t samples, const ReductionTimes& reduction);
  // One step of a given length, for those who measure it themselves.
  void Add(int64_t samples, std::chrono::nanoseconds step, const ReductionTimes& reduction);
  // Adds the steps that the GPU has ended by now. EndStep() does it, too: this is for the last
  // ones.
  void Collect();
  // Steps that were not added are forgotten.
  void Reset();

  int64_t steps() const { return sums_.steps; }
  // 0 while there is no step. The first is over all ranks.
  double samples_per_second() const;
  double step_ms() const;
  // On a GPU false until a step ends with a known reduction: the host is ahead of it.
  bool knows_communication() const {
    return timer_ == nullptr || sums_.measured_time > std::chrono::nanoseconds(0);
  }
  // By the share that it has of the steps from that one on; 0 before it.
  double communication_ms() const;
  double exposed_ms() const;
  // Exposed communication as a share of the same steps, 0 to 1.
  double exposed_communication_share() const;

  // "5120 samples/s, step 25.00 ms, communication 3.10 ms, exposed <0.01 ms (0.0 %)". Of
  // several ranks whose communication is not known: "..., communication not measured".
  std::string Summary() const;
  // One sentence when the exposed share is above kExposedShareWarning, otherwise empty. `hosts`: on
  // which the ranks run (RankSteps::hosts); only between several does a network carry gradients.
  std::string Warning(int hosts) const;

 private:
  double ShareOf(std::chrono::nanoseconds part) const;

  internal::Counters* const counters_;  // null: the launcher is not told, or not by this one
  int64_t told_steps_ = 0;
  const int world_size_;
  internal::DeviceTimer* const timer_ = nullptr;  // null: the host's clock
  const Stream stream_ = nullptr;

  Clock::time_point begin_;
  struct Sums {
    int64_t steps = 0;
    int64_t samples = 0;  // of this rank
    std::chrono::nanoseconds time{0};
    std::chrono::nanoseconds measured_time{0};  // of steps from the first known reduction on
    std::chrono::nanoseconds communication{0};
    std::chrono::nanoseconds exposed{0};
  };
  Sums sums_;

  // On a GPU.
  std::unique_ptr<internal::DeviceMoment> device_begin_;  // null: not known
  struct Ended {
    std::unique_ptr<internal::DeviceMoment> begin, end;
    int64_t samples;
    ReductionTimes reduction;
  };
  std::deque<Ended> ended_;  // for the host, in their order
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_STEP_METRICS_H_
