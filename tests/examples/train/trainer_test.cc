#include "examples/train/trainer.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/train/agree_on_status.h"
#include "examples/train/cpu_network.h"
#include "tests/examples/train/drawn_set.h"
#include "tests/examples/train/step_losses.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_group.h"

namespace train {
namespace {

using ddprun::testing::Contains;
using ddprun::testing::DrawSet;
using ddprun::testing::ReadFile;
using ddprun::testing::StepLosses;
using ddprun::testing::TempDir;
using ddprun::testing::ThreadGroup;
using ddprun::testing::WriteFile;

const ImageSet& Training() {
  static const ImageSet set = DrawSet(1, 1200);
  return set;
}
const ImageSet& Test() {
  static const ImageSet set = DrawSet(2, 301);
  return set;
}

Options Small(int batch_size) {
  Options options;
  options.batch_size = batch_size;
  options.epochs = 2;
  options.hidden = 32;
  options.bucket_cap_mb = 0.01;  // several buckets
  return options;
}

constexpr int kNever = -1;

// Every rank's result; rank 0's is first. `stop_after`: the call at which all should stop.
std::vector<absl::StatusOr<Summary>> Attempt(const Options& options, int world_size,
                                             int stop_after = kNever,
                                             const std::string& log_file = "/dev/null") {
  std::vector<absl::StatusOr<Summary>> results(world_size, absl::UnknownError("not run"));
  std::FILE* log = std::fopen(log_file.c_str(), "we");
  ThreadGroup group(world_size);
  group.Run([&](ddp::Communicator& communicator) {
    auto network =
        std::make_unique<CpuNetwork>(Training().pixels_per_image(), options.hidden, options.seed);
    const auto should_stop = [call = 0, stop_after]() mutable { return ++call == stop_after; };
    Trainer trainer(options, communicator, std::move(network), should_stop, Training(), Test(),
                    log);
    results[communicator.rank()] = trainer.Run();
  });
  std::fclose(log);
  return results;
}

std::vector<absl::StatusOr<Summary>> Train(const Options& options, int world_size,
                                           int stop_after = kNever) {
  std::vector<absl::StatusOr<Summary>> results = Attempt(options, world_size, stop_after);
  for (const absl::StatusOr<Summary>& result : results) {
    REQUIRE_MESSAGE(result.ok(), std::string(result.status().message()));
  }
  return results;
}

double Difference(double a, double b) { return std::abs(a - b) / std::abs(b); }

TEST_CASE("trainer: loss falls, and all ranks end with the same weights") {
  const auto results = Train(Small(30), 3);
  CHECK(results[0]->epochs.size() == 2);
  CHECK(results[0]->epochs[1].loss < results[0]->epochs[0].loss);
  CHECK(results[0]->epochs[1].accuracy > 0.5);
  CHECK(results[0]->steps == 28);  // 400 images a rank, 14 batches
  CHECK(results[0]->start_step == 0);
  CHECK(results[1]->parameters_checksum == results[0]->parameters_checksum);
  CHECK(results[2]->parameters_checksum == results[0]->parameters_checksum);
  CHECK(results[2]->epochs[1].accuracy == results[0]->epochs[1].accuracy);
}

TEST_CASE("trainer: a loss that is no number is told, and stays so in what is written of it") {
  const TempDir dir;
  Options options = Small(30);
  options.learning_rate = 1e30F;
  options.step_log = dir.File("steps");
  const auto results = Attempt(options, 2, kNever, dir.File("log"));
  REQUIRE(results[0].ok());
  CHECK(std::isnan(results[0]->epochs[1].loss));
  CHECK(ReadFile(dir.File("log")) == Contains("warning: the loss is no number any more"));
  CHECK(ReadFile(dir.File("steps")) == Contains("\"loss\": null}"));
  CHECK(ToJson(*results[0]) == Contains("\"loss\": null"));
  const std::vector<EpochResult> read = DecodeEpochs(EncodeEpochs(results[0]->epochs));
  REQUIRE(read.size() == 2);
  CHECK(std::isnan(read[1].loss));
}

TEST_CASE("trainer: with the same global batch the loss is the same on 1, 2 and 4 ranks") {
  TempDir dir;
  std::vector<double> losses[3];
  std::vector<EpochResult> epochs[3];
  for (int i = 0; i < 3; ++i) {
    Options options = Small(48 >> i);
    options.step_log = dir.File("log" + std::to_string(i));
    epochs[i] = Train(options, 1 << i)[0]->epochs;
    losses[i] = StepLosses(options.step_log);
    REQUIRE(losses[i].size() == 50);
  }
  for (const int i : {1, 2}) {
    for (int step = 0; step < 20; ++step) {
      INFO("step ", step, " on ", 1 << i, " ranks: ", losses[i][step], ", alone ", losses[0][step]);
      CHECK(Difference(losses[i][step], losses[0][step]) < 1e-5);
    }
    CHECK(Difference(epochs[i][0].loss, epochs[0][0].loss) < 2e-3);
    CHECK(Difference(epochs[i][1].loss, epochs[0][1].loss) < 2e-3);
  }
}

TEST_CASE("trainer: accumulated small batches are one large batch") {
  TempDir dir;
  Options whole = Small(48), parts = Small(12);
  parts.accumulate = 4;
  whole.step_log = dir.File("whole");
  parts.step_log = dir.File("parts");
  Train(whole, 2);
  Train(parts, 2);
  const std::vector<double> a = StepLosses(whole.step_log), b = StepLosses(parts.step_log);
  REQUIRE(a.size() == b.size());
  for (int step = 0; step < 20; ++step) CHECK(Difference(b[step], a[step]) < 1e-5);
}

TEST_CASE("trainer: resumed from any checkpoint it ends with the same bits") {
  TempDir dir;
  const auto undisturbed = Train(Small(30), 2);
  const struct {
    int epochs, checkpoint_every, stop_after;  // steps; an epoch has 20
  } rows[] = {{1, 7, 7}, {1, 7, 14}, {1, 7, 20}, {2, 9, 27}, {2, 9, 36}, {2, 9, 40}};
  for (const auto& [epochs, checkpoint_every, stop_after] : rows) {
    INFO("stopped after step ", stop_after);
    Options options = Small(30);
    options.checkpoint_dir = dir.File("after" + std::to_string(stop_after));
    options.checkpoint_every = checkpoint_every;
    options.epochs = epochs;
    Train(options, 2);
    // What a killed run leaves behind: nothing after this step.
    for (const auto& entry : std::filesystem::directory_iterator(options.checkpoint_dir)) {
      const std::string name = entry.path().filename().string();
      const std::string tail = "step-" + std::to_string(stop_after) + ".ckpt";
      if (name.find(tail) == std::string::npos) std::filesystem::remove(entry.path());
    }
    options.resume = true;
    options.epochs = 2;
    const auto resumed = Train(options, 2);
    CHECK(resumed[0]->start_step == stop_after);
    CHECK(resumed[0]->steps == undisturbed[0]->steps);
    CHECK(resumed[0]->parameters_checksum == undisturbed[0]->parameters_checksum);
    REQUIRE(resumed[0]->epochs.size() == 2);
    for (int i = 0; i < 2; ++i) {
      CHECK(resumed[0]->epochs[i].epoch == i + 1);
      CHECK(Difference(resumed[0]->epochs[i].loss, undisturbed[0]->epochs[i].loss) < 1e-12);
      CHECK(resumed[0]->epochs[i].accuracy == undisturbed[0]->epochs[i].accuracy);
    }
  }
}

TEST_CASE(
    "trainer: told to stop after any step, it saves that step, and resumed ends with the same "
    "bits") {
  TempDir dir;
  const auto undisturbed = Train(Small(30), 2);
  for (const int stop_after : {1, 7, 19, 20, 21, 39, 40}) {  // an epoch has 20
    INFO("stopped after step ", stop_after);
    Options options = Small(30);
    options.checkpoint_dir = dir.File("after" + std::to_string(stop_after));
    const auto stopped = Train(options, 2, stop_after);
    for (const auto& rank : stopped) CHECK(rank->steps == stop_after);
    CHECK(stopped[0]->epochs.size() == static_cast<size_t>(stop_after / 20));
    options.resume = true;
    const auto resumed = Train(options, 2);
    CHECK(resumed[0]->start_step == stop_after);
    CHECK(resumed[0]->steps == undisturbed[0]->steps);
    CHECK(resumed[0]->parameters_checksum == undisturbed[0]->parameters_checksum);
    REQUIRE(resumed[0]->epochs.size() == 2);
    for (int i = 0; i < 2; ++i) {
      CHECK(Difference(resumed[0]->epochs[i].loss, undisturbed[0]->epochs[i].loss) < 1e-12);
      CHECK(resumed[0]->epochs[i].accuracy == undisturbed[0]->epochs[i].accuracy);
    }
  }
}

TEST_CASE("trainer: a rank whose weights drift is named by all") {
  for (const int64_t every : {0, 4}) {
    CAPTURE(every);
    Options options = Small(10);  // 40 steps an epoch
    options.check_replicas_every = every;
    options.check_replicas_on_gpu = every == 4;  // on a CPU without effect
    options.plant_drift = 10;
    for (const absl::StatusOr<Summary>& result : Attempt(options, 3)) {
      const std::string text = result.status().ToString();
      CHECK_MESSAGE(absl::IsDataLoss(result.status()), text);
      CHECK(text == Contains("'hidden.weight': rank 2 differs from the others"));
      const std::string when = "after step 12, and did not after step 8;";
      CHECK_MESSAGE((every == 0 || text == Contains(when)), text);
    }
  }
}

// As in a short run, or behind the last comparison of a long one.
TEST_CASE("trainer: weights that drift in the last step are found before they are saved") {
  TempDir dir;
  Options options = Small(10);
  options.check_replicas_every = 1000;
  options.plant_drift = 60;  // of 60 in the first epoch
  options.checkpoint_dir = dir.path();
  for (const absl::StatusOr<Summary>& result : Attempt(options, 2)) {
    const std::string text = result.status().ToString();
    CHECK(text == Contains("the replicas differ after step 60; "));
  }
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    CHECK(entry.path().extension() != ".ckpt");
  }
}

TEST_CASE("trainer: whether to stop that cannot be asked is the run's error") {
  std::vector<absl::Status> statuses(2);
  std::FILE* log = std::fopen("/dev/null", "we");
  const Options options = Small(30);
  ThreadGroup group(2);
  group.Run([&](ddp::Communicator& communicator) {
    auto network =
        std::make_unique<CpuNetwork>(Training().pixels_per_image(), options.hidden, options.seed);
    Trainer trainer(
        options, communicator, std::move(network),
        []() -> absl::StatusOr<bool> { return absl::UnavailableError("rank 7 died"); }, Training(),
        Test(), log);
    statuses[communicator.rank()] = trainer.Run().status();
  });
  std::fclose(log);
  for (const absl::Status& status : statuses)
    CHECK(status == absl::UnavailableError("rank 7 died"));
}

// Two ranks, each with options of its own, whose run fails after the first step. `on_parameters` is
// called where rank 1 sets its model up.
void FailEach(const Options (&options)[2], const std::function<void(Trainer&)>& on_parameters) {
  class HookedNetwork : public CpuNetwork {
   public:
    using CpuNetwork::CpuNetwork;
    std::vector<Parameter>& parameters() override {
      if (hook) std::exchange(hook, nullptr)();
      return CpuNetwork::parameters();
    }
    std::function<void()> hook;
  };
  std::FILE* log = std::fopen("/dev/null", "we");
  ThreadGroup group(2);
  group.Run([&](ddp::Communicator& communicator) {
    const Options& mine = options[communicator.rank()];
    auto network =
        std::make_unique<HookedNetwork>(Training().pixels_per_image(), mine.hidden, mine.seed);
    HookedNetwork& hooked = *network;
    ddp::RunRecord record;
    if (communicator.rank() == 0) record.started_at = "2026-01-31T08:00:00Z";
    Trainer trainer(
        mine, communicator, std::move(network),
        []() -> absl::StatusOr<bool> { return absl::UnavailableError("rank 7 died"); }, Training(),
        Test(), log, record);
    if (communicator.rank() == 1) hooked.hook = [&] { on_parameters(trainer); };
    CHECK(trainer.Run().status() == absl::UnavailableError("rank 7 died"));
  });
  std::fclose(log);
}

TEST_CASE("trainer: a rank with a directory of its own leaves the record of an earlier run there") {
  const TempDir dir;
  Options options[] = {Small(30), Small(30)};
  options[0].checkpoint_dir = dir.File("0");
  options[1].checkpoint_dir = dir.File("1");
  ddp::RunRecord earlier;
  earlier.started_at = "2026-01-24T08:00:00Z";
  std::filesystem::create_directory(dir.File("1"));
  WriteFile(dir.File("1/run.json"), ToJson(earlier));
  FailEach(options, [](Trainer&) {});
  CHECK(ReadFile(dir.File("0/run.json")) == Contains("\"rank 7 died\""));
  CHECK(ReadFile(dir.File("1/run.json")) == ToJson(earlier));
}

TEST_CASE("trainer: a rank that a signal ends while its model is set up says so in the record") {
  const TempDir dir;
  Options options[] = {Small(30), Small(30)};
  options[0].checkpoint_dir = options[1].checkpoint_dir = dir.File("ck");
  std::string record;
  FailEach(options, [&](Trainer& trainer) {
    trainer.EndedBy(SIGTERM);
    record = ReadFile(dir.File("ck/run.json"));
  });
  CHECK(record == Contains("\"rank 1 was ended by SIGTERM before the run was over\""));
}

TEST_CASE("trainer: another number of ranks goes on from a checkpoint") {
  TempDir dir;
  Options options = Small(24);
  options.checkpoint_dir = dir.File("ck");
  options.epochs = 1;
  Train(options, 4);
  options.resume = true;
  options.epochs = 2;
  options.batch_size = 48;
  const auto resumed = Train(options, 2);
  CHECK(resumed[0]->start_step == 13);
  CHECK(resumed[0]->steps == 26);
  CHECK(resumed[0]->epochs.size() == 2);
}

TEST_CASE("trainer: sharded velocities change no bit") {
  for (const int world_size : {1, 2, 3}) {
    TempDir dir;
    std::vector<double> losses[2];
    std::string weights[2];
    for (const bool is_sharded : {false, true}) {
      Options options = Small(20);
      options.accumulate = 2;
      options.zero = is_sharded;
      options.step_log = dir.File(is_sharded ? "sharded" : "whole");
      const auto results = Train(options, world_size);
      losses[is_sharded] = StepLosses(options.step_log);
      weights[is_sharded] = results[0]->parameters_checksum;
      for (const auto& result : results) CHECK(result->parameters_checksum == weights[is_sharded]);
    }
    INFO(world_size, " ranks");
    CHECK(losses[0].size() == static_cast<size_t>(2 * 1200 / 40 / world_size));
    CHECK(losses[0] == losses[1]);
    CHECK(weights[0] == weights[1]);
  }
}

TEST_CASE("trainer: without a checkpoint --resume starts at the beginning") {
  TempDir dir;
  Options options = Small(30);
  options.checkpoint_dir = dir.File("none");
  options.resume = true;
  const auto results = Train(options, 2);
  CHECK(results[0]->start_step == 0);
  CHECK(results[0]->checkpoint.find(dir.File("none/checkpoint-000002-step-40.ckpt")) == 0);
}

TEST_CASE("trainer: an error on one rank becomes the same error on all") {
  ThreadGroup group(3);
  std::vector<absl::Status> statuses(3);
  group.Run([&](ddp::Communicator& communicator) {
    const absl::Status mine =
        communicator.rank() == 0
            ? absl::OkStatus()
            : absl::DataLossError("file " + std::to_string(communicator.rank()));
    statuses[communicator.rank()] = AgreeOnStatus(communicator, mine);
  });
  for (const absl::Status& status : statuses) {
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(status.message() == "file 1");
  }
}

}  // namespace
}  // namespace train
