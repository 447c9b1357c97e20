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

// Sums over the steps since construction or Reset(), as this rank sees them. One thread at a time
// uses it. Exposed communication includes waiting for slower ranks.
//
// On a GPU, calls return long before their work is done. So a step lasts from what BeginStep()
// finds on the stream to what EndStep() finds there, by events. The step counts once the device has
// reported it, usually when the next step ends. The host never waits for it. If a host is more than
// 64 steps ahead, some steps never count.
//
// The launcher gets every step that counts, and its exposed time. They arrive as if by ReportStep()
// (ddp/progress.h), with numbers from 1 on. Only one of several StepMetrics reports: the first one
// constructed while no other reports, until its end. If the program calls ReportStep() itself,
// those reports count, and only the exposed time is added.
//
// The measure is that of PyTorch's DDP logger. It does not count how long collectives took, but by
// how much they made the step longer.
class StepMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  // Above this share of the step the job wastes more than it should.
  static constexpr double kExposedShareWarning = 0.10;

  // Uses the host's clock. REQUIRES: world_size >= 1.
  explicit StepMetrics(int world_size);
  // Measures as the communicator works: on a GPU by events on `stream`, on the CPU by the host's
  // clock. Name the stream of the steps: events on another stream pass at once. Borrows the
  // communicator.
  explicit StepMetrics(Communicator& communicator, Stream stream = nullptr);
  ~StepMetrics();
  StepMetrics(const StepMetrics&) = delete;
  StepMetrics& operator=(const StepMetrics&) = delete;

  void BeginStep();
  // Ends the step now. `samples` are this rank's. The other ranks count with the same number.
  void EndStep(int64_t samples, const ReductionTimes& reduction);
  // Adds one step of a given length, for programs that measure it themselves.
  void Add(int64_t samples, std::chrono::nanoseconds step, const ReductionTimes& reduction);
  // Adds the steps that the GPU has ended by now. EndStep() does it, too, so this is for the last
  // ones.
  void Collect();
  // Forgets all steps, those not added yet included.
  void Reset();

  int64_t steps() const { return sums_.steps; }
  // 0 before the first step. The first is over all ranks.
  double samples_per_second() const;
  double step_ms() const;
  // On a GPU false until a step ends with a known reduction: the host is ahead of it.
  bool knows_communication() const {
    return timer_ == nullptr || sums_.measured_time > std::chrono::nanoseconds(0);
  }
  // Their share of the steps from that one on. 0 before it.
  double communication_ms() const;
  double exposed_ms() const;
  // Exposed communication as a share of the same steps, 0 to 1.
  double exposed_communication_share() const;

  // "5120 samples/s, step 25.00 ms, communication 3.10 ms, exposed <0.01 ms (0.0 %)". If there are
  // several ranks with unknown communication: "..., communication not measured".
  std::string Summary() const;
  // One sentence if the exposed share is above kExposedShareWarning, otherwise empty. `hosts` is
  // the number of hosts with ranks (RankSteps::hosts). Only between several hosts does a network
  // carry gradients.
  std::string Warning(int hosts) const;

 private:
  double ShareOf(std::chrono::nanoseconds part) const;

  internal::Counters* const counters_;  // null: the launcher gets no steps, or not those of this
                                        // one
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
  std::deque<Ended> ended_;  // ended on the host, in their order
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_STEP_METRICS_H_
