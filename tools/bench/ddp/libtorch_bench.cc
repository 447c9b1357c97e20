// torch_bench.py's steps by libtorch and ddp/torch.h: the same network, batch and optimizer.
//
//   libtorch_bench --ranks N --hidden H --layers L [--seconds S]
//
// One JSON object per way of a step, as ddp_bench prints them: without DDP (bare), with it (sync).
// tools/bench/libtorch_cases.py builds it: Bazel knows no libtorch.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "ddp/ddp.h"
#include "ddp/torch.h"
#include "tools/bench/ddp/turns.h"

namespace ddprun::bench {
namespace {

constexpr int64_t kBatch = 64, kInputs = 28 * 28, kClasses = 10, kBatchesOfSamples = 8;

struct Options {
  int ranks = 2;
  int64_t hidden = 512;
  int layers = 2;
  double seconds = 3;
};

torch::nn::Sequential MakeNetwork(const Options& options) {
  torch::manual_seed(1);
  torch::nn::Sequential network;
  int64_t inputs = kInputs;
  for (int i = 0; i < options.layers; ++i) {
    network->push_back(torch::nn::Linear(inputs, options.hidden));
    network->push_back(torch::nn::ReLU());
    inputs = options.hidden;
  }
  network->push_back(torch::nn::Linear(inputs, kClasses));
  return network;
}

// `model` is the network itself or what wraps it.
template <typename Model>
class Steps {
 public:
  Steps(Model& model, const torch::nn::Sequential& network, const at::Tensor& images,
        const at::Tensor& labels)
      : model_(model),
        optimizer_(network->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        images_(images),
        labels_(labels) {}

  absl::Status operator()() {
    const int64_t first = steps_++ % kBatchesOfSamples * kBatch;
    optimizer_.zero_grad();
    torch::cross_entropy_loss(model_.forward(images_.slice(0, first, first + kBatch)),
                              labels_.slice(0, first, first + kBatch))
        .backward();
    optimizer_.step();
    return absl::OkStatus();
  }

 private:
  Model& model_;
  torch::optim::SGD optimizer_;
  const at::Tensor images_, labels_;
  int64_t steps_ = 0;
};

absl::Status Measure(ddp::ProcessGroup& group, const Options& options) {
  torch::manual_seed(static_cast<uint64_t>(group.rank()));
  const at::Tensor images = torch::rand({kBatchesOfSamples * kBatch, kInputs});
  const at::Tensor labels = torch::randint(kClasses, {kBatchesOfSamples * kBatch}, torch::kInt64);
  torch::nn::Sequential alone = MakeNetwork(options), network = MakeNetwork(options);
  ddp::torch::DistributedDataParallel model(network, group);
  Steps bare(*alone, alone, images, labels);
  Steps sync(model, network, images, labels);
  std::vector<Way> ways = {{"bare", [&] { return bare(); }}, {"sync", [&] { return sync(); }}};
  absl::Status status = MeasureInTurns(group.communicator(), options.seconds, ways);
  if (!status.ok() || group.rank() != 0) return status;
  int64_t count = 0;
  for (const at::Tensor& parameter : network->parameters()) count += parameter.numel();
  for (const Way& way : ways) {
    std::printf("{\"way\": \"%s\", \"ms\": %.6f, \"more_ms\": %.6f, \"parameters\": %lld}\n",
                way.name.c_str(), way.ms, way.more_ms, static_cast<long long>(count));
  }
  return status;
}

int RunRank(const Options& options) {
  torch::set_num_threads(1);
  const auto group = ddp::ProcessGroup::FromEnv({});
  absl::Status status = group.status();
  try {
    if (status.ok()) status = Measure(**group, options);
  } catch (const c10::Error& error) {
    status = absl::UnknownError(error.what_without_backtrace());
  }
  if (status.ok()) status = (*group)->Shutdown();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::bench

int main(int argc, char** argv) {
  ddprun::bench::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (name == "--hidden") options.hidden = std::atoi(argv[i + 1]);
    if (name == "--layers") options.layers = std::atoi(argv[i + 1]);
    if (name == "--seconds") options.seconds = std::atof(argv[i + 1]);
  }
  const absl::Status status =
      ddp::Spawn(options.ranks, [&options](int) { return ddprun::bench::RunRank(options); });
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
