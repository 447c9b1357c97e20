#include "examples/train/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>

#include "examples/train/exit_codes.h"

namespace train {
namespace {

constexpr uint64_t kMillion = 1'000'000;
constexpr uint64_t kMany = 1000 * kMillion;

bool IsRank0() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || std::string(rank) == "0";
}

// The number that all of `text` is. CLI11 alone takes "1x", "nan" and "-1" for an unsigned number.
template <typename Number>
std::optional<Number> AllOf(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string Refuse(const std::string& text, const std::string& accepted) {
  return "expected " + accepted + ", got '" + text + "'";
}

CLI::Validator WholeNumber(uint64_t min, uint64_t max) {
  const std::string accepted =
      "a whole number from " + std::to_string(min) + " to " + std::to_string(max);
  const auto check = [=](std::string& text) -> std::string {
    const std::optional<uint64_t> number = AllOf<uint64_t>(text);
    if (!number || *number < min || *number > max) return Refuse(text, accepted);
    text = std::to_string(*number);  // CLI11 would read "010" as 8
    return "";
  };
  return CLI::Validator(check, "");
}

CLI::Validator PositiveNumber() {
  const auto check = [](std::string& text) -> std::string {
    const std::optional<float> number = AllOf<float>(text);
    if (number && *number > 0 && *number <= kMillion) return "";
    return Refuse(text, "a number above 0, at most " + std::to_string(kMillion));
  };
  return CLI::Validator(check, "");
}

// An option whose values have names; `accepted` tells them in words.
template <typename Choice>
void AddChoice(CLI::App& app, const char* name, const char* description, const char* accepted,
               const char* initial, const std::map<std::string, Choice>& names, Choice* choice) {
  const auto check = [names, accepted](const std::string& text) -> std::string {
    return names.count(text) > 0 ? "" : Refuse(text, accepted);
  };
  app.add_option_function<std::string>(
         name, [names, choice](const std::string& text) { *choice = names.at(text); }, description)
      ->default_str(initial)
      ->check(CLI::Validator(check, ""));
}

// What is kept, and what is looked after.
void AddCareOptions(CLI::App& app, Options& options) {
  app.add_option("--checkpoint_dir", options.checkpoint_dir,
                 "Where to save after each epoch; without it nothing is saved");
  app.add_option("--checkpoint_every", options.checkpoint_every,
                 "Also save after so many steps; 0: only after each epoch")
      ->check(WholeNumber(0, kMany));
  app.add_flag("--resume", options.resume,
               "Go on from the newest checkpoint, if there is one; without it a run starts anew "
               "and moves checkpoints that it finds to CHECKPOINT_DIR/earlier-<n>")
      ->always_capture_default(false);
  app.add_option("--check_replicas_every", options.check_replicas_every,
                 "Compare the weights of all ranks after so many steps; 0: as often as costs less "
                 "than 0.1 % of the time, on a GPU never. Where they are compared at all, also "
                 "before each checkpoint and after each epoch")
      ->check(WholeNumber(0, kMany));
  app.add_flag(
         "--check_replicas_on_gpu", options.check_replicas_on_gpu,
         "With --check_replicas_every on a GPU: a kernel hashes the weights there, instead of "
         "the host after a copy")
      ->always_capture_default(false);
  app.add_option("--plant_drift", options.plant_drift,
                 "To try that out: after this step the last rank changes one weight; 0: never")
      ->check(WholeNumber(0, kMany));
  app.add_option("--plant_slow_rank", options.plant_slow_rank,
                 "To see how a slow rank is named: the last one sleeps so many ms in each step")
      ->check(WholeNumber(0, kMillion));
}

// What options say against each other; empty where they go together.
std::string Contradiction(const Options& options) {
  if (options.checkpoint_dir.empty() && options.resume) return "--resume needs --checkpoint_dir";
  if (options.checkpoint_dir.empty() && options.checkpoint_every > 0) {
    return "--checkpoint_every needs --checkpoint_dir";
  }
  if (options.zero && options.plant_drift > 0) {
    return "--plant_drift does not go with --zero: each step replaces a rank's weights by those of "
           "the ranks that update them, and ends the drift";
  }
  return "";
}

// One write, since all ranks complain at the same time. Returns the exit code.
int Complain(const std::string& what) {
  std::cerr << "train: " + what + "\n";
  return kExitUsage;
}

}  // namespace

std::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Learns to read digits on all ranks. Example: ddprun --nproc-per-node=4 train "
      "--data digits --epochs 3");
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "Print this help");
  app.add_option("--data", options.data, "Directory with MNIST's four files, plain or .gz")
      ->required();
  app.add_option("--epochs", options.epochs, "Passes over the data")->check(WholeNumber(1, kMany));
  app.add_option("--batch_size", options.batch_size, "Images per rank and backward pass")
      ->check(WholeNumber(1, kMillion));
  app.add_option("--lr", options.learning_rate, "Learning rate")->check(PositiveNumber());
  app.add_option("--hidden", options.hidden, "Width of the hidden layer")
      ->check(WholeNumber(1, kMillion));
  app.add_option("--bucket_cap_mb", options.bucket_cap_mb, "Gradients reduced together, in MiB")
      ->check(PositiveNumber());
  AddChoice(app, "--compression", "How gradients travel: none, or halved as bf16 or fp16",
            "none, bf16 or fp16", "none",
            {{"none", ddp::GradientCompression::kNone},
             {"bf16", ddp::GradientCompression::kBFloat16},
             {"fp16", ddp::GradientCompression::kFloat16}},
            &options.compression);
  app.add_option("--accumulate", options.accumulate, "Backward passes per step")
      ->check(WholeNumber(1, kMany));
  app.add_flag("--zero", options.zero,
               "Each of N ranks keeps and updates 1/N of the optimizer's velocities and gets the "
               "other weights from the others (ZeRO stage 1)")
      ->always_capture_default(false);
  AddCareOptions(app, options);
  AddChoice(app, "--device", "cpu, cuda, or auto: cuda where every rank has a GPU of its own",
            "cpu, cuda or auto", "auto",
            {{"auto", ddp::DeviceChoice::kAuto},
             {"cpu", ddp::DeviceChoice::kCpu},
             {"cuda", ddp::DeviceChoice::kCuda}},
            &options.device);
  AddChoice(app, "--backend", "auto, nccl, shm or tcp", "auto, nccl, shm or tcp", "auto",
            {{"auto", ddp::Backend::kAuto},
             {"nccl", ddp::Backend::kNccl},
             {"shm", ddp::Backend::kShm},
             {"tcp", ddp::Backend::kTcp}},
            &options.backend);
  app.add_option("--comm_timeout", options.comm_timeout,
                 "Seconds until a collective that does not end is an error")
      ->check(WholeNumber(1, kMillion));
  app.add_option("--seed", options.seed, "Of the weights and of the order of the images")
      ->check(WholeNumber(0, UINT64_MAX));
  app.add_option("--summary_file", options.summary_file, "JSON about the whole run, at its end");
  app.add_option("--step_log", options.step_log, "JSON line for every step: step, loss");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (IsRank0()) std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    const bool is_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const char* advice = is_unknown ? "; --help lists the options" : "";
    return Complain(error.what() + std::string(advice));
  }
  const std::string contradiction = Contradiction(options);
  if (!contradiction.empty()) return Complain(contradiction);
  return options;
}

}  // namespace train
