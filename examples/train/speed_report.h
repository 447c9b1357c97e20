// How fast training runs and what is in its way, for the trainer's lines.
#ifndef DDPRUN_EXAMPLES_TRAIN_SPEED_REPORT_H_
#define DDPRUN_EXAMPLES_TRAIN_SPEED_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/rank_balance.h"
#include "ddp/step_metrics.h"
#include "examples/train/summary.h"

namespace train {

// "170000 samples/s, exposed communication 4.0 %, CPU utilisation 90 %", and which rank is slow, if
// one is. REQUIRES: there is a rank.
std::string SpeedText(const ddp::StepMetrics& metrics, std::span<const ddp::RankSteps> ranks);
// Fills in the summary's part. REQUIRES: there is a rank.
void SummariseSpeed(const ddp::StepMetrics& metrics, std::span<const ddp::RankSteps> ranks,
                    Summary& summary);

// Every rank has one and calls the same. Borrows the communicator.
class SpeedReport {
 public:
  // `stream`: where the steps run; null on the CPU.
  SpeedReport(ddp::Communicator& communicator, ddp::Stream stream);

  void BeginEpoch();
  void EndEpoch();
  // Within an epoch.
  void BeginStep();
  void EndStep(int64_t samples, const ddp::ReductionTimes& reduction);

  // Collective. The end of an epoch's line, of what was measured since the last.
  absl::StatusOr<std::string> EpochText();
  // Collective, once. Fills in the summary of all epochs; rank 0 tells it on `log`, and on stderr
  // what would help.
  absl::Status Finish(Summary& summary, std::FILE* log);

 private:
  // What is measured over an epoch and over the run.
  struct Span {
    Span(ddp::Communicator& communicator, ddp::Stream stream)
        : metrics(communicator, stream), balance(communicator) {}
    ddp::StepMetrics metrics;
    ddp::RankBalance balance;
  };

  const int rank_;
  Span epoch_;
  Span run_;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_SPEED_REPORT_H_
