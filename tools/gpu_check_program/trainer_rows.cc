#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/gpu_check_program/check.h"

namespace ddprun::gpu_check {
namespace {

// By how much two loss curves of one training may differ where only the order of float32 sums does.
// The curves go from 2.3 down; a step of training that is wrong differs by more.
constexpr double kCurveTolerance = 0.01;
constexpr double kOverheadTarget = 0.01;
constexpr int kBatch = 64;  // of all ranks together

struct Training {
  Outcome outcome;
  std::map<int, double> losses;  // by step; of a step done twice the last
};

struct TrainingOptions {
  int ranks = 1;
  bool is_shared = false;
  std::string device;  // empty: the check's
  std::string data = "digits_small";
  int epochs = 1;
  std::vector<std::string> launcher;  // options of ddprun, and a program before the rank's
  std::vector<std::string> trainer;
};

Training Train(const Check& check, const TrainingOptions& options) {
  const std::string log = check.Scratch("steps");
  std::remove(log.c_str());
  std::vector<std::string> argv = {check.Program("train"),
                                   "--data",
                                   check.Scratch(options.data),
                                   "--device",
                                   options.device.empty() ? check.device : options.device,
                                   "--epochs",
                                   std::to_string(options.epochs),
                                   "--batch_size",
                                   std::to_string(kBatch / options.ranks),
                                   "--comm_timeout",
                                   "60",
                                   "--step_log",
                                   log};
  argv.insert(argv.end(), options.trainer.begin(), options.trainer.end());
  Training training;
  training.outcome = options.ranks == 1
                         ? check.Run(argv)
                         : check.RunRanks(options.ranks, options.is_shared, argv, options.launcher);
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    int step = 0;
    double loss = 0;
    if (std::sscanf(line.c_str(), "{\"step\": %d, \"loss\": %lf", &step, &loss) == 2) {
      training.losses[step] = loss;
    }
  }
  return training;
}

Result Compare(const std::string& what, const Training& expected, const Training& got) {
  if (!expected.outcome.ok())
    return FailedRun(what + ": the run to compare with", expected.outcome);
  if (!got.outcome.ok()) return FailedRun(what, got.outcome);
  if (got.losses.empty() || got.losses.size() != expected.losses.size()) {
    return Failed(
        absl::StrCat(what, ": ", got.losses.size(), " steps, expected ", expected.losses.size()));
  }
  double largest = 0;
  for (const auto& [step, loss] : expected.losses) {
    const auto found = got.losses.find(step);
    const double difference = found == got.losses.end() ? INFINITY : std::abs(found->second - loss);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  const double last = got.losses.rbegin()->second;
  return {largest <= kCurveTolerance ? Verdict::kOk : Verdict::kFailed,
          absl::StrFormat("%s: %d steps, loss %.4f to %.4f, largest difference %.1e (at most %.2f)",
                          what, got.losses.size(), got.losses.begin()->second, last, largest,
                          kCurveTolerance),
          {{"largest_difference", largest}, {"last_loss", last}}};
}

Result LossCurveRow(Check& check) {
  if (!check.trainer_lack.empty()) return NotRun(check.trainer_lack);
  return Compare("curve on the GPU beside the CPU's",
                 Train(check, {.device = "cpu", .data = "digits"}),
                 Train(check, {.data = "digits"}));
}

Result TrainingRow(Check& check, int ranks, bool is_shared) {
  if (!check.trainer_lack.empty()) return NotRun(check.trainer_lack);
  if (ranks == 1) return NotRun("one GPU only");
  return Compare(absl::StrCat(ranks, is_shared ? " ranks on one GPU" : " GPUs", " beside one rank"),
                 Train(check, {}), Train(check, {.ranks = ranks, .is_shared = is_shared}));
}

// Gradients that travel as 16 bits: nearly the losses of those that do not.
Result CompressionRow(Check& check, int ranks, bool is_shared) {
  if (!check.trainer_lack.empty()) return NotRun(check.trainer_lack);
  const Training plain = Train(check, {.ranks = ranks, .is_shared = is_shared});
  Result result;
  for (const char* type : {"bf16", "fp16"}) {
    const Training half =
        Train(check, {.ranks = ranks, .is_shared = is_shared, .trainer = {"--compression", type}});
    Result one = Compare(absl::StrCat(type, " beside float32, ranks: ", ranks), plain, half);
    const auto difference = one.values.find("largest_difference");
    if (difference != one.values.end()) {
      result.values[absl::StrCat("largest_difference_", type)] = difference->second;
      // One rank sends nothing.
      if (ranks > 1 && difference->second == 0) {
        one = Failed(absl::StrCat(type, ": the very losses of float32; nothing was compressed"));
      }
    }
    if (one.verdict == Verdict::kFailed) {
      result.verdict = Verdict::kFailed;
      result.log += one.log;
    }
    absl::StrAppend(&result.text, result.text.empty() ? "" : "; ", one.text);
  }
  return result;
}

// Of "name": NUMBER in a summary.
double NumberIn(const std::string& file, const std::string& name) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const size_t at = text.str().find("\"" + name + "\": ");
  return at == std::string::npos ? -1
                                 : std::strtod(text.str().c_str() + at + name.size() + 4, nullptr);
}

Result RestartRow(Check& check, int ranks, bool is_shared) {
  if (!check.trainer_lack.empty()) return NotRun(check.trainer_lack);
  if (!is_shared && check.gpus < 2) return NotRun("one GPU only");
  // Long enough for the kill to come in time; ranks that share a GPU are slow.
  const int epochs = is_shared ? 3 : 40;
  const std::string directory = check.Scratch(absl::StrCat(is_shared ? "shared" : "gpus", ranks));
  const std::string summary = check.Scratch("summary.json");
  const Training whole = Train(check, {.epochs = epochs});
  const Training restarted =
      Train(check, {.ranks = ranks,
                    .is_shared = is_shared,
                    .epochs = epochs,
                    .launcher = {"--max-restarts=1", check.Program("dies_once"), directory},
                    .trainer = {"--checkpoint_dir", directory, "--checkpoint_every", "4",
                                "--resume", "--summary_file", summary}});
  Result result = Compare("rank 1 killed, restarted by ddprun, resumed", whole, restarted);
  if (result.verdict == Verdict::kFailed) return result;
  const double restarts = NumberIn(summary, "restart_count");
  const double start_step = NumberIn(summary, "start_step");
  if (restarts != 1 || start_step < 1) {
    return Failed(absl::StrCat("restarts ", restarts, ", resumed at step ", start_step,
                               ": expected 1, and a step above 0"));
  }
  absl::StrAppend(&result.text, ", from step ", start_step);
  result.values["start_step"] = start_step;
  return result;
}

constexpr struct {
  const char* hidden;
  const char* batch;
} kNetworks[] = {{"1024", "64"}, {"8192", "512"}};

std::string NetworkName(const char* hidden, const char* batch) {
  return absl::StrCat("hidden ", hidden, ", batch ", batch);
}

Result StepTimeRow(Check& check) {
  if (!check.trainer_lack.empty()) return NotRun(check.trainer_lack);
  Result result;
  for (const auto& [hidden, batch] : kNetworks) {
    const Outcome outcome =
        check.Run({check.Program("gpu_check"), "step_time", check.Scratch("digits"), hidden, batch,
                   check.device == "cpu" ? "cpu" : "auto"});
    if (!outcome.ok()) return FailedRun("step time", outcome);
    const double with = outcome.Value("with_ms").value_or(0);
    const double without = outcome.Value("without_ms").value_or(0);
    if (with <= 0 || without <= 0) return FailedRun("step time: no figures", outcome);
    const double overhead = with / without - 1;
    if (overhead > kOverheadTarget) result.verdict = Verdict::kMissed;
    absl::StrAppendFormat(
        &result.text, "%s%s: %.3f ms, without the library %.3f ms, overhead %.1f %%",
        result.text.empty() ? "" : "; ", NetworkName(hidden, batch), with, without, 100 * overhead);
    result.values[absl::StrCat("with_ms_", hidden)] = with;
    result.values[absl::StrCat("without_ms_", hidden)] = without;
  }
  absl::StrAppendFormat(&result.text, " (target %.0f %%)", 100 * kOverheadTarget);
  return result;
}

// Both at world size 1, where PyTorch reduces through NCCL and we know that we need not.
Result TorchStepRow(Check& check) {
  if (check.python.empty()) return NotRun(check.python_lack);
  if (!check.trainer_lack.empty()) return NotRun(check.trainer_lack);
  Result result;
  for (const auto& [hidden, batch] : kNetworks) {
    const Outcome ours = check.Run(
        {check.Program("gpu_check"), "step_time", check.Scratch("digits"), hidden, batch, "nccl"});
    if (!ours.ok()) return FailedRun("step time with nccl", ours);
    const Outcome torch = check.Run({check.python, check.Program("torch_ddp.py"), "step",
                                     check.Scratch("digits"), hidden, batch});
    if (!torch.ok()) return FailedRun("PyTorch", torch);
    const double ours_ms = ours.Value("with_ms").value_or(0);
    const double torch_ms = torch.Value("with_ms").value_or(0);
    if (ours_ms <= 0 || torch_ms <= 0) return FailedRun("PyTorch: no figures", torch);
    if (ours_ms > torch_ms) result.verdict = Verdict::kMissed;
    absl::StrAppendFormat(&result.text,
                          "%s%s: %.3f ms, PyTorch's DDP %.3f ms (without DDP %.3f ms)",
                          result.text.empty() ? "" : "; ", NetworkName(hidden, batch), ours_ms,
                          torch_ms, torch.Value("without_ms").value_or(0));
    result.values[absl::StrCat("ours_ms_", hidden)] = ours_ms;
    result.values[absl::StrCat("torch_ms_", hidden)] = torch_ms;
  }
  return result;
}

Result TorchJobRow(Check& check) {
  if (check.python.empty()) return NotRun(check.python_lack);
  const int ranks = std::max(1, check.gpus);
  const Outcome outcome = check.RunRanks(
      ranks, /*is_shared=*/false, {check.Program("torch_ddp.py"), "job", check.Scratch("digits")});
  if (!outcome.ok()) return FailedRun("PyTorch under ddprun", outcome);
  const auto first = outcome.Value("first_loss"), last = outcome.Value("last_loss");
  if (!first || !last || !(*last < *first)) return FailedRun("PyTorch under ddprun", outcome);
  return {Verdict::kOk,
          absl::StrFormat("DistributedDataParallel, nccl, %d ranks: loss %.3f to %.3f", ranks,
                          *first, *last)};
}

// `ddprun bench` on the GPUs that are there; its table is the log. Fails where losses differ.
Result BenchRow(Check& check) {
  if (!check.nccl_lack.empty()) return NotRun(check.nccl_lack);
  std::string ranks = "1";
  for (int more = 2; more <= std::min(check.gpus, 8); more *= 2) absl::StrAppend(&ranks, ",", more);
  const Outcome outcome = check.Run({check.Program("ddprun"), "bench", "dp-ddp", "--device", "cuda",
                                     "--world-sizes", ranks, "--seconds", "1"});
  if (!outcome.ok()) return FailedRun("ddprun bench", outcome);
  Result result;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    char way[4] = "";
    int count = 0;
    double samples = 0, speedup = 0;
    if (std::sscanf(line.c_str(), "%3s %d %lf %lf", way, &count, &samples, &speedup) != 4) continue;
    const std::string name = absl::StrCat(way, "_", count);
    result.values[absl::StrCat("samples_per_second_", name)] = samples;
    absl::StrAppendFormat(&result.text, "%s%s with %d: %.0f samples/s",
                          result.text.empty() ? "" : "; ", way, count, samples);
  }
  if (result.values.empty()) return FailedRun("ddprun bench: no table", outcome);
  result.log = outcome.out;
  return result;
}

}  // namespace

const std::vector<RowKind>& TrainerRows() {
  static const std::vector<RowKind> rows = {
      {"loss_curve", 60, &LossCurveRow},
      {"step_time", 60, &StepTimeRow},
      {"torch_step", 90, &TorchStepRow},
      {"torch_job", 60, &TorchJobRow},
      {"bench", 300, &BenchRow},
      {"shared_training_2", 60, [](Check& c) { return TrainingRow(c, 2, true); }},
      {"shared_training_4", 90, [](Check& c) { return TrainingRow(c, 4, true); }},
      {"shared_restart_2", 90, [](Check& c) { return RestartRow(c, 2, true); }},
      {"shared_restart_4", 90, [](Check& c) { return RestartRow(c, 4, true); }},
      {"compression", 60, [](Check& c) { return CompressionRow(c, 1, false); }},
      {"shared_compression_2", 90, [](Check& c) { return CompressionRow(c, 2, true); }},
      {"gpus_training", 60,
       [](Check& c) { return TrainingRow(c, c.gpus >= 4 ? 4 : std::min(c.gpus, 2), false); }},
      {"gpus_restart", 60, [](Check& c) { return RestartRow(c, 2, false); }},
      {"gpus_compression", 60,
       [](Check& c) { return c.gpus > 1 ? CompressionRow(c, 2, false) : NotRun("one GPU only"); }},
  };
  return rows;
}

}  // namespace ddprun::gpu_check
