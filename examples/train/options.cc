#include "examples/train/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <map>

namespace train {
namespace {

// Exit code for a usage error, as ddprun's own.
constexpr int kUsage = 2;

bool IsRank0() {
  const char* rank = std::getenv("RANK");
  return rank == nullptr || std::string(rank) == "0";
}

}  // namespace

std::variant<Options, int> ParseOptions(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Learns to read digits on all ranks. Example: ddprun --nproc_per_node=4 train "
      "--data digits --epochs 3");
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "Print this help");
  constexpr int kMany = 1'000'000'000;
  app.add_option("--data", options.data, "Directory with MNIST's four files, plain or .gz")
      ->required();
  app.add_option("--epochs", options.epochs, "Passes over the data")->check(CLI::Range(1, kMany));
  app.add_option("--batch_size", options.batch_size, "Images per rank and backward pass")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--lr", options.learning_rate, "Learning rate")->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden, "Width of the hidden layer")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--bucket_cap_mb", options.bucket_cap_mb, "Gradients reduced together, in MiB")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--accumulate", options.accumulate, "Backward passes per step")
      ->check(CLI::Range(1, kMany));
  app.add_option("--checkpoint_dir", options.checkpoint_dir,
                 "Where to save after each epoch; without it nothing is saved");
  app.add_option("--checkpoint_every", options.checkpoint_every, "Also save after so many steps")
      ->check(CLI::Range(0, kMany));
  app.add_flag("--resume", options.resume, "Go on from the newest checkpoint, if there is one")
      ->always_capture_default(false);
  const std::map<std::string, ddp::Backend> backends = {
      {"auto", ddp::Backend::kAuto}, {"shm", ddp::Backend::kShm}, {"tcp", ddp::Backend::kTcp}};
  std::string backend = "auto";
  app.add_option("--backend", backend, "auto, shm or tcp")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}));
  app.add_option("--seed", options.seed, "Of the weights and of the order of the images");
  app.add_option("--summary_file", options.summary_file, "JSON about the whole run, at its end");
  app.add_option("--step_log", options.step_log, "JSON line for every step: step, loss");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (IsRank0()) std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    if (IsRank0()) std::cerr << "train: " << error.what() << '\n';
    return kUsage;
  }
  options.backend = backends.at(backend);
  if (options.resume && options.checkpoint_dir.empty()) {
    if (IsRank0()) std::cerr << "train: --resume needs --checkpoint_dir\n";
    return kUsage;
  }
  return options;
}

}  // namespace train
