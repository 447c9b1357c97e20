// The training loop: how a program uses the library.
#ifndef DDPRUN_EXAMPLES_TRAIN_TRAINER_H_
#define DDPRUN_EXAMPLES_TRAIN_TRAINER_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"
#include "ddp/communicator.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"
#include "ddp/replica_check.h"
#include "ddp/run_record.h"
#include "examples/train/host_model.h"
#include "examples/train/idx_data.h"
#include "examples/train/network.h"
#include "examples/train/optimizer.h"
#include "examples/train/options.h"
#include "examples/train/speed_report.h"
#include "examples/train/summary.h"

namespace train {

// One rank of a run. Every rank makes one with the same options and calls Run().
class Trainer {
 public:
  // ProcessGroup::ShouldStop().
  using ShouldStop = std::function<absl::StatusOr<bool>()>;

  // `network` computes where the communicator reduces. `should_stop` is asked after each step.
  // Borrows the rest. `log` gets a few lines per epoch on rank 0, whose `record` is written beside
  // the checkpoints, when the run begins and when it has ended. The first rank that learns of a
  // failure writes it there, since rank 0 may have been killed.
  Trainer(const Options& options, ddp::Communicator& communicator, std::unique_ptr<Network> network,
          ShouldStop should_stop, const ImageSet& training, const ImageSet& test, std::FILE* log,
          ddp::RunRecord record = {});

  // Trains to the end, or to the step after which it should stop, which it saves; the result is
  // complete on rank 0.
  absl::StatusOr<Summary> Run();
  // Writes into the record that a signal is about to end this process. For another thread.
  void EndedBy(int signal);

 private:
  absl::Status TrainToEnd();
  void FinishRecord(const absl::Status& status);
  absl::Status PrepareOutputs();
  absl::Status SetEarlierAside();
  absl::Status Prepare();
  void LogStart();
  absl::Status Resume();
  absl::Status TrainEpoch();
  absl::Status Step();
  void ReportProgress();
  absl::Status BeginRecord();
  absl::Status ShareRecord();
  absl::Status PlantDrift();
  absl::Status CheckReplicas();
  absl::Status CompareReplicas();
  absl::Status FinishEpoch(int64_t epoch);
  absl::Status Save();
  void LogStop();
  absl::StatusOr<double> CollectLoss();
  // The mean over all ranks of what they added to `sum` and `count`.
  absl::Status SumOverRanks(double* sum, double* count);
  absl::StatusOr<double> TestAccuracy();
  absl::Status LogStep(double loss, size_t samples);
  absl::Status Report();
  bool is_rank0() const { return communicator_.rank() == 0; }
  bool is_last_rank() const { return communicator_.rank() + 1 == communicator_.world_size(); }

  const Options& options_;
  ddp::Communicator& communicator_;
  const ImageSet& training_;
  const ImageSet& test_;
  std::FILE* const log_;

  const std::unique_ptr<Network> network_;
  HostModel host_model_;
  std::optional<Optimizer> optimizer_;  // none until gradients have a place
  const ShouldStop should_stop_;
  ddp::DistributedDataParallel ddp_;
  ddp::DistributedSampler sampler_;
  ddp::Checkpoint checkpoint_;
  ddp::ReplicaCheck replica_check_;
  SpeedReport speed_;
  ddp::RunRecord record_;
  std::mutex record_mutex_;
  ddp::RunRecordFile record_file_;           // guarded by record_mutex_
  std::vector<ddp::Tensor> device_weights_;  // where the network has them

  bool is_stopping_ = false;    // the launcher has asked
  int64_t step_ = 0;            // optimizer steps done
  int64_t compared_step_ = -1;  // the last after which CompareReplicas() was called
  double loss_sum_ = 0;         // of this epoch so far, this rank's share
  double loss_count_ = 0;       // images in it
  Summary summary_;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_TRAINER_H_
