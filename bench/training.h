// One way of training, step by step, and the loop that measures it.
#ifndef DDPRUN_BENCH_TRAINING_H_
#define DDPRUN_BENCH_TRAINING_H_

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/device.h"
#include "bench/report.h"
#include "ddp/communicator.h"
#include "worker_runtime/comm/device_timer.h"

namespace ddprun::bench {

// One step, in milliseconds since its beginning.
struct StepRecord {
  double step_ms = 0;
  double communication_ms = 0;
  double exposed_ms = 0;
  double backward_end_ms = 0;
  std::vector<Span> phases;
  std::vector<Span> reductions;
};

// Cuts a step into phases, one after the other: by the host's clock or, with a timer, by when the
// stream gets there, so that nobody waits between them.
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;
  explicit PhaseClock(ddp::internal::DeviceTimer* timer = nullptr, ddp::Stream stream = nullptr);
  // The phase that has gone on since the last call, or since the construction, ends.
  void EndPhase(const char* name);
  // Once all is done: sets the phases and the length of the step. Unavailable where the device does
  // not tell its times.
  absl::Status Fill(StepRecord& record);
  // REQUIRES: after Fill().
  double At(Clock::time_point time) const;

 private:
  struct End {
    const char* phase;
    Clock::time_point time;
    std::unique_ptr<ddp::internal::DeviceMoment> moment;  // with a timer
  };
  ddp::internal::DeviceTimer* const timer_;
  const ddp::Stream stream_;
  std::vector<End> ends_;  // the first is the step's beginning
};

// Used by one thread. All ranks call the same functions in the same order.
class Training {
 public:
  virtual ~Training() = default;
  virtual absl::StatusOr<StepRecord> Step() = 0;
  // Of the last step: the mean over the global batch, before its update.
  virtual absl::StatusOr<double> Loss() = 0;
  // The largest of what the ranks say.
  virtual absl::StatusOr<double> Largest(double mine) = 0;
  // After the last step: way, ranks, bytes and memory; times become means over the ranks.
  virtual absl::Status Complete(Row& row) = 0;
};

// DistributedDataParallel on this rank of the group.
class DistributedTraining final : public Training {
 public:
  // Collective. Borrows the communicator. `gpu` as ProcessGroup::gpu() has it.
  static absl::StatusOr<std::unique_ptr<DistributedTraining>> Create(ddp::Communicator& group,
                                                                     int gpu,
                                                                     size_t bucket_cap_bytes);
  ~DistributedTraining() override;

  absl::StatusOr<StepRecord> Step() override;
  absl::StatusOr<double> Loss() override;
  absl::StatusOr<double> Largest(double mine) override;
  absl::Status Complete(Row& row) override;
  int bucket_count() const;

 private:
  struct State;
  explicit DistributedTraining(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// DataParallel with so many replicas, in this process.
class ReplicatedTraining final : public Training {
 public:
  static absl::StatusOr<std::unique_ptr<ReplicatedTraining>> Create(int replicas,
                                                                    ddp::DeviceType type);
  ~ReplicatedTraining() override;

  absl::StatusOr<StepRecord> Step() override;
  absl::StatusOr<double> Loss() override;
  absl::StatusOr<double> Largest(double mine) override;
  absl::Status Complete(Row& row) override;

 private:
  struct State;
  explicit ReplicatedTraining(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// Which step, from 0, has the length and the exposed communication that together are nearest to the
// row's. Pure. REQUIRES: there is a step.
size_t TypicalStep(const std::vector<StepRecord>& steps, const Row& row);

// How far the medians of the first and the second half are apart, as Row::halves_apart. Pure.
double HalvesApart(const std::vector<double>& step_ms);

// Trains kLossSteps steps, which also warm up, and then for about that many seconds; of a report,
// fills in the row and the time line of its typical step.
absl::StatusOr<Report> Measure(Training& training, double seconds);
// Compares values of bucket_cap_mb, each layout of the buckets once, a step of each in turns.
// Collective.
absl::StatusOr<Report> MeasureSweep(ddp::Communicator& group, int gpu, double seconds);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_TRAINING_H_
