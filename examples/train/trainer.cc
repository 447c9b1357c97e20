#include "examples/train/trainer.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "ddp/progress.h"
#include "examples/train/agree_on_status.h"
#include "examples/train/step_log.h"

namespace train {

using ddp::DType;
using ddp::ReduceOp;
using std::chrono::milliseconds;

namespace {

constexpr char kTakesDirectory[] = "--checkpoint_dir takes a directory that can be written to";

absl::Status WithAdvice(const absl::Status& status, absl::string_view advice) {
  return absl::FailedPreconditionError(absl::StrCat(status.message(), "; ", advice));
}

// A rank alone has nothing to share.
bool IsSharded(const Options& options, const ddp::Communicator& communicator) {
  return options.zero && communicator.world_size() > 1;
}

}  // namespace

Trainer::Trainer(const Options& options, ddp::Communicator& communicator,
                 std::unique_ptr<Network> network, ShouldStop should_stop, const ImageSet& training,
                 const ImageSet& test, std::FILE* log, ddp::RunRecord record)
    : options_(options),
      communicator_(communicator),
      training_(training),
      test_(test),
      log_(log),
      network_(std::move(network)),
      host_model_(*network_, communicator),
      should_stop_(std::move(should_stop)),
      ddp_(communicator,
           {.bucket_cap_bytes = static_cast<size_t>(options.bucket_cap_mb * (1 << 20)),
            .compression = options.compression,
            .shard_gradients = IsSharded(options, communicator),
            .stream = network_->stream()}),
      sampler_(training.count, communicator.rank(), communicator.world_size(),
               {.seed = options.seed}),
      checkpoint_(communicator, {.directory = options.checkpoint_dir}),
      replica_check_(communicator, {.every = options.check_replicas_every,
                                    .on_device = options.check_replicas_on_gpu}),
      speed_(communicator, network_->stream()),
      record_(std::move(record)),
      record_file_(options.checkpoint_dir) {}

absl::StatusOr<Summary> Trainer::Run() {
  const absl::Status status = TrainToEnd();
  FinishRecord(status);
  if (!status.ok()) return status;
  return summary_;
}

absl::Status Trainer::TrainToEnd() {
  absl::Status status = ShareRecord();
  if (status.ok()) status = AgreeOnStatus(communicator_.host(), PrepareOutputs());
  if (status.ok()) status = Prepare();
  // Of a run that goes on once it has loaded: one that is refused leaves the earlier run's record.
  if (status.ok() && options_.resume) {
    status = AgreeOnStatus(communicator_.host(), BeginRecord());
  }
  if (!status.ok()) return status;
  for (int64_t epoch = sampler_.state().epoch; epoch < options_.epochs; ++epoch) {
    sampler_.SetEpoch(epoch);  // another order each epoch; a restored position stays
    if (absl::Status status = TrainEpoch(); !status.ok()) return status;
    if (sampler_.remaining() > 0) break;  // stopped in its midst
    if (absl::Status status = FinishEpoch(epoch); !status.ok()) return status;
    if (is_stopping_) break;
  }
  if (is_stopping_ && is_rank0()) LogStop();
  if (step_ > 0 && step_ == summary_.start_step && !is_stopping_ && is_rank0()) {
    std::fprintf(log_, "all %d epochs were done before: a larger --epochs trains further\n",
                 options_.epochs);
  }
  if (status = host_model_.CopyOut(); !status.ok()) return status;
  return Report();
}

// What the run was made of and how it ended, beside the checkpoints and in the summary. A record
// that cannot be written does not make a failure of what has been trained and saved.
void Trainer::FinishRecord(const absl::Status& status) {
  record_.End(status, is_stopping_);
  summary_.record = record_;
  if (options_.checkpoint_dir.empty() || (status.ok() && !is_rank0())) return;
  const std::lock_guard lock(record_mutex_);
  const absl::Status written =
      status.ok() ? record_file_.Write(record_)
                  : record_file_.WriteEnd(ddp::RunOutcome::kFailed, status.message());
  if (!written.ok()) {
    std::fprintf(stderr, "train: warning: the record of the run is out of date: %s\n",
                 std::string(written.message()).c_str());
  }
}

// A person has stopped the job with SIGINT, or with the terminal, SIGHUP. SIGTERM is a failure: a
// launcher sends it to the ranks that are left when one was killed, most often before they notice.
void Trainer::EndedBy(int signal) {
  const std::lock_guard lock(record_mutex_);
  // The process ends now: nobody is left to hear of an error.
  (void)record_file_.WriteEnd(
      signal == SIGTERM ? ddp::RunOutcome::kFailed : ddp::RunOutcome::kStopped,
      absl::StrCat("rank ", communicator_.rank(), " was ended by SIG", sigabbrev_np(signal),
                   " before the run was over"));
}

// Tells all ranks which record rank 0 is about to begin, for them to end should it be killed.
absl::Status Trainer::ShareRecord() {
  std::string text = is_rank0() ? ToJson(record_) : "";
  int64_t size = static_cast<int64_t>(text.size());
  ddp::Communicator& host = communicator_.host();
  absl::Status status = host.Broadcast(&size, 1, DType::kInt64, /*root=*/0)->Wait();
  if (!status.ok()) return status;
  text.resize(static_cast<size_t>(size));
  status = host.Broadcast(text.data(), text.size(), DType::kUint8, /*root=*/0)->Wait();
  if (!status.ok() || is_rank0() || options_.checkpoint_dir.empty()) return status;
  const std::lock_guard lock(record_mutex_);
  record_file_.Adopt(std::move(text));
  return status;
}

absl::Status Trainer::BeginRecord() {
  if (!is_rank0() || options_.checkpoint_dir.empty()) return absl::OkStatus();
  const std::lock_guard lock(record_mutex_);
  const absl::Status status = record_file_.Write(record_);
  return status.ok() ? status : WithAdvice(status, kTakesDirectory);
}

// Rank 0 finds out before the first step, not after the last, what cannot be written.
absl::Status Trainer::PrepareOutputs() {
  if (!is_rank0()) return absl::OkStatus();
  if (!options_.summary_file.empty()) {
    absl::Status status = CheckSummaryFile(options_.summary_file);
    if (!status.ok()) {
      return WithAdvice(status, "--summary_file takes a file in an existing directory");
    }
  }
  if (!options_.step_log.empty()) {
    absl::Status status = CheckStepLog(options_.step_log);
    if (!status.ok()) {
      return WithAdvice(status, "--step_log takes a file in an existing directory");
    }
  }
  if (options_.checkpoint_dir.empty()) return absl::OkStatus();
  absl::Status status = checkpoint_.CheckWritable();
  if (status.ok() && !options_.resume) status = SetEarlierAside();
  if (!status.ok()) return WithAdvice(status, kTakesDirectory);
  return options_.resume ? absl::OkStatus() : BeginRecord();
}

absl::Status Trainer::SetEarlierAside() {
  const auto earlier = checkpoint_.SetEarlierAside();
  if (!earlier.ok()) return earlier.status();
  if (earlier->has_value()) {
    std::fprintf(stderr,
                 "train: starting anew; earlier checkpoints are now in \"%s\" (--resume "
                 "--checkpoint_dir with that directory goes on from them)\n",
                 (*earlier)->c_str());
  }
  return absl::OkStatus();
}

// Registers the parameters, in the order of forward; afterwards all ranks have rank 0's, and
// gradients have a place to be written to.
absl::Status Trainer::Prepare() {
  std::vector<Parameter>& parameters = network_->parameters();
  for (const Parameter& p : parameters) {
    ddp_.AddParameter(p.name, p.values, p.count, DType::kFloat32);
    device_weights_.push_back({p.name, p.values, p.count, DType::kFloat32});
  }
  if (absl::Status status = ddp_.Finalize(); !status.ok()) return status;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].gradient = static_cast<float*>(ddp_.GradientPtr(static_cast<int>(i)));
  }
  absl::StatusOr<Optimizer> optimizer =
      Optimizer::Create(*network_, IsSharded(options_, communicator_) ? &ddp_ : nullptr);
  absl::Status status = AgreeOnStatus(communicator_.host(), optimizer.status());
  if (!status.ok()) return status;
  optimizer_.emplace(*std::move(optimizer));
  summary_.world_size = communicator_.world_size();
  summary_.backend = communicator_.backend();
  if (is_rank0()) LogStart();
  return options_.resume ? Resume() : absl::OkStatus();
}

void Trainer::LogStart() {
  const int ranks = communicator_.world_size();
  std::fprintf(log_, "training on %lld images of %d x %d: %d rank%s (%s), %lld images a step\n",
               static_cast<long long>(training_.count), training_.size, training_.size, ranks,
               ranks == 1 ? "" : "s", communicator_.backend(),
               static_cast<long long>(options_.batch_size) * options_.accumulate * ranks);
  if (!optimizer_->is_sharded()) return;
  std::fprintf(log_, "rank 0 keeps %zu of %zu velocities\n", optimizer_->count(),
               host_model_.count());
}

// Loads the newest good checkpoint into every rank, if there is one.
absl::Status Trainer::Resume() {
  auto loaded = host_model_.Load(checkpoint_, *optimizer_);
  if (!loaded.ok()) return loaded.status();  // names what was refused, too
  if (is_rank0()) {
    for (const std::string& why : checkpoint_.refused()) {
      std::fprintf(stderr, "train: %s\n", why.c_str());
    }
  }
  if (!loaded->has_value()) return absl::OkStatus();
  ddp::TrainingState& state = **loaded;
  sampler_.Restore(state.sampler);
  step_ = summary_.start_step = state.step;
  summary_.epochs = DecodeEpochs(state.extra["epochs"]);
  if (is_rank0()) {  // the sums were over all ranks
    loss_sum_ = std::strtod(state.extra["loss_sum"].c_str(), nullptr);
    loss_count_ = std::strtod(state.extra["loss_count"].c_str(), nullptr);
    std::fprintf(log_, "resumed at step %lld from %s\n", static_cast<long long>(step_),
                 checkpoint_.latest().c_str());
  }
  return absl::OkStatus();
}

absl::Status Trainer::TrainEpoch() {
  speed_.BeginEpoch();
  while (sampler_.remaining() > 0 && !is_stopping_) {
    if (absl::Status status = Step(); !status.ok()) return status;
    if (absl::Status status = CheckReplicas(); !status.ok()) return status;
    const absl::StatusOr<bool> should_stop = should_stop_();  // the same on all ranks
    if (!should_stop.ok()) return should_stop.status();
    is_stopping_ = *should_stop;
    const bool is_due = options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0;
    if ((is_due || is_stopping_) && sampler_.remaining() > 0) {
      if (absl::Status status = CompareReplicas(); !status.ok()) return status;
      if (absl::Status status = CollectLoss().status(); !status.ok()) return status;
      if (absl::Status status = Save(); !status.ok()) return status;
    }
  }
  if (absl::Status status = CompareReplicas(); !status.ok()) return status;
  const absl::Status status = CollectLoss().status();
  speed_.EndEpoch();
  return status;
}

// One step of the optimizer: the gradient of the mean loss over the images of all ranks.
absl::Status Trainer::Step() {
  ddp::ReportPhase(ddp::Phase::kTrain);
  speed_.BeginStep();
  if (is_last_rank()) std::this_thread::sleep_for(milliseconds(options_.plant_slow_rank));
  const size_t batch = static_cast<size_t>(options_.batch_size);
  const std::vector<int64_t> indices = sampler_.Next(batch * options_.accumulate);
  absl::Status status = ddp_.ZeroGrad();
  for (size_t begin = 0; begin < indices.size(); begin += batch) {
    const size_t count = std::min(batch, indices.size() - begin);
    // Only the last pass of a step reduces; those before it add up locally.
    const auto guard = ddp_.NoSync(begin + count < indices.size());
    status.Update(network_->Forward(training_, std::span(indices).subspan(begin, count)));
    if (!status.ok()) return status;
    status.Update(network_->Backward(1.0f / static_cast<float>(indices.size()), [&](int parameter) {
      status.Update(ddp_.GradientReady(parameter));
    }));
  }
  status.Update(ddp_.Finish());
  if (!status.ok()) return status;
  status = optimizer_->Step(options_.learning_rate);
  if (!status.ok()) return status;
  ++step_;
  ReportProgress();
  const int64_t samples = static_cast<int64_t>(indices.size());
  ddp::ReportStep(step_, samples);
  ddp::ReductionTimes times = ddp_.last_reduction();
  optimizer_->AddWait(times);
  speed_.EndStep(samples, times);

  loss_count_ += static_cast<double>(samples);
  if (options_.step_log.empty()) return absl::OkStatus();
  const absl::StatusOr<double> loss = CollectLoss();
  return loss.ok() ? LogStep(*loss, indices.size()) : loss.status();
}

absl::Status Trainer::PlantDrift() {
  if (!is_last_rank()) return absl::OkStatus();
  if (absl::Status status = host_model_.CopyOut(); !status.ok()) return status;
  *static_cast<float*>(host_model_.weights()[0].data) += 1;
  return host_model_.CopyIn();
}

absl::Status Trainer::CheckReplicas() {
  if (step_ == options_.plant_drift) {
    if (absl::Status status = PlantDrift(); !status.ok()) return status;
  }
  return replica_check_.CountStep() ? CompareReplicas() : absl::OkStatus();
}

// Whether all ranks still have the same weights: now and then, before a checkpoint and at the end
// of an epoch. On a GPU they are copied to the host for that, or hashed by a kernel, so only where
// the user wants it.
absl::Status Trainer::CompareReplicas() {
  const bool is_on_gpu = communicator_.device_type() == ddp::DeviceType::kCuda;
  if (is_on_gpu && options_.check_replicas_every == 0) return absl::OkStatus();
  if (communicator_.world_size() == 1) return absl::OkStatus();
  if (std::exchange(compared_step_, step_) == step_) return absl::OkStatus();
  if (options_.check_replicas_on_gpu) {
    return replica_check_.Compare(step_, device_weights_, network_->stream());
  }
  if (absl::Status status = host_model_.CopyOut(); !status.ok()) return status;
  return replica_check_.Compare(step_, host_model_.weights());
}

// Tells the launcher how much of the training is done: in samples, of which a resumed run has as
// many behind it with any number of ranks.
void Trainer::ReportProgress() {
  const int64_t an_epoch = sampler_.samples_per_rank();
  const int64_t in_this_epoch = an_epoch - sampler_.remaining();
  ddp::ReportProgress(sampler_.state().epoch * an_epoch + in_this_epoch,
                      options_.epochs * an_epoch);
}

// Moves what the network's forward passes lost into loss_sum_ and returns it. Waits for the device,
// so it is asked only when somebody wants to know.
absl::StatusOr<double> Trainer::CollectLoss() {
  const absl::StatusOr<Tally> tally = network_->TakeTally();
  if (!tally.ok()) return tally.status();
  loss_sum_ += tally->loss;
  return tally->loss;
}

absl::Status Trainer::FinishEpoch(int64_t epoch) {
  if (absl::Status status = SumOverRanks(&loss_sum_, &loss_count_); !status.ok()) return status;
  ddp::ReportPhase(ddp::Phase::kEvaluation);
  const absl::StatusOr<double> accuracy = TestAccuracy();
  if (!accuracy.ok()) return accuracy.status();
  const EpochResult result{
      .epoch = epoch + 1, .loss = loss_sum_ / loss_count_, .accuracy = *accuracy};
  summary_.epochs.push_back(result);
  const absl::StatusOr<std::string> speed = speed_.EpochText();
  if (!speed.ok()) return speed.status();
  loss_sum_ = loss_count_ = 0;
  if (is_rank0()) {
    std::fprintf(log_, "epoch %lld/%d: loss %.4f, test accuracy %.2f %%, %s\n",
                 static_cast<long long>(result.epoch), options_.epochs, result.loss,
                 100 * result.accuracy, speed->c_str());
    if (!std::isfinite(result.loss)) {
      std::fprintf(log_,
                   "warning: the loss is no number any more, and the checkpoint that follows has "
                   "such weights: try a lower --lr, or go on from an older checkpoint\n");
    }
  }
  sampler_.SetEpoch(epoch + 1);  // the checkpoint goes on there
  return Save();
}

absl::Status Trainer::Save() {
  if (options_.checkpoint_dir.empty()) return absl::OkStatus();
  ddp::ReportPhase(ddp::Phase::kCheckpoint);
  double sum = loss_sum_, count = loss_count_;
  if (absl::Status status = SumOverRanks(&sum, &count); !status.ok()) return status;
  return host_model_.Save(checkpoint_,
                          {.step = step_,
                           .sampler = sampler_.state(),
                           .extra = {{"epochs", EncodeEpochs(summary_.epochs)},
                                     {"loss_sum", absl::StrFormat("%.17g", sum)},
                                     {"loss_count", absl::StrFormat("%.17g", count)}}},
                          *optimizer_);
}

void Trainer::LogStop() {
  std::fprintf(log_, "stopped after step %lld, as the launcher asked; %s\n",
               static_cast<long long>(step_),
               options_.checkpoint_dir.empty() ? "nothing is saved without --checkpoint_dir"
                                               : "--resume goes on from there");
}

absl::Status Trainer::SumOverRanks(double* sum, double* count) {
  double both[] = {*sum, *count};
  absl::Status status =
      communicator_.host().AllReduce(both, 2, DType::kFloat64, ReduceOp::kSum)->Wait();
  *sum = both[0];
  *count = both[1];
  return status;
}

// Exact: every test image is judged by one rank, whether they divide evenly or not.
absl::StatusOr<double> Trainer::TestAccuracy() {
  constexpr size_t kBatch = 256;
  std::vector<int64_t> mine;
  for (int64_t i = communicator_.rank(); i < test_.count; i += communicator_.world_size()) {
    mine.push_back(i);
  }
  for (size_t begin = 0; begin < mine.size(); begin += kBatch) {
    absl::Status status = network_->Forward(
        test_, std::span(mine).subspan(begin, std::min(kBatch, mine.size() - begin)));
    if (!status.ok()) return status;
  }
  const absl::StatusOr<Tally> tally = network_->TakeTally();
  if (!tally.ok()) return tally.status();
  int64_t correct = tally->correct;
  absl::Status status =
      communicator_.host().AllReduce(&correct, 1, DType::kInt64, ReduceOp::kSum)->Wait();
  if (!status.ok()) return status;
  return static_cast<double>(correct) / static_cast<double>(test_.count);
}

absl::Status Trainer::LogStep(double loss, size_t samples) {
  double count = static_cast<double>(samples);
  if (absl::Status status = SumOverRanks(&loss, &count); !status.ok()) return status;
  if (!is_rank0()) return absl::OkStatus();
  return AddToStepLog(options_.step_log, step_, loss / count);
}

absl::Status Trainer::Report() {
  summary_.steps = step_;
  summary_.checkpoint = checkpoint_.latest();
  summary_.parameters_checksum = ddp::ChecksumHex(host_model_.weights());
  if (absl::Status status = speed_.Finish(summary_, log_); !status.ok()) return status;
  if (is_rank0()) {
    std::fprintf(log_, "checkpoint: %s\n",
                 summary_.checkpoint.empty() ? "none" : summary_.checkpoint.c_str());
  }
  return absl::OkStatus();
}

}  // namespace train
