#include "examples/train/gpu/cuda_network.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/train/cpu_network.h"
#include "examples/train/optimizer.h"
#include "tests/examples/train/drawn_set.h"
#include "tests/examples/train/gpu/emulated_cublas.h"
#include "tests/examples/train/gpu/emulated_layers.h"
#include "tests/support/contains.h"
#include "tests/support/emulated_cuda.h"
#include "tools/make_digits/digits.h"

namespace train {
namespace {

using ddp::internal::kCudaErrorOutOfMemory;
using ddp::internal::kCudaSuccess;
using ddprun::testing::EmulatedCublas;
using ddprun::testing::EmulatedCuda;
using ddprun::testing::EmulatedLayers;
using ddprun::testing::LiveCublasHandles;

constexpr int kInputs = ddprun::tools::kImageSize * ddprun::tools::kImageSize;
constexpr int kHidden = 33;  // not a whole number of add_column_sums's blocks
constexpr uint64_t kSeed = 5;

const ImageSet& Digits() {
  static const ImageSet set = ddprun::testing::DrawSet(1, 400);
  return set;
}

// `count` images from `begin` on, not in the set's order.
std::vector<int64_t> Indices(int64_t begin, size_t count) {
  std::vector<int64_t> indices(count);
  for (size_t i = 0; i < count; ++i) {
    indices[i] = (begin + 7 * static_cast<int64_t>(i)) % Digits().count;
  }
  return indices;
}

// A network with memory for its gradients, and an optimizer.
struct WithGradients {
  explicit WithGradients(std::unique_ptr<Network> made) : network(std::move(made)) {
    for (Parameter& parameter : network->parameters()) {
      gradients.emplace_back(parameter.count);
      parameter.gradient = gradients.back().data();
    }
    absl::StatusOr<Optimizer> with = Optimizer::Create(*network);
    REQUIRE_MESSAGE(with.ok(), std::string(with.status().message()));
    optimizer.emplace(*std::move(with));
  }
  void ZeroGradients() {
    for (std::vector<float>& gradient : gradients) gradient.assign(gradient.size(), 0);
  }
  Tally TakeTally() {
    const absl::StatusOr<Tally> tally = network->TakeTally();
    REQUIRE_MESSAGE(tally.ok(), std::string(tally.status().message()));
    return *tally;
  }

  // By parameter.
  std::vector<std::vector<float>> Velocities() {
    std::vector<std::vector<float>> velocities;
    std::vector<ddp::Tensor> tensors;
    for (const Parameter& parameter : network->parameters()) {
      velocities.emplace_back(parameter.count);
      tensors.push_back({parameter.name, velocities.back().data(), parameter.count});
    }
    REQUIRE(optimizer->CopyOut(tensors).ok());
    return velocities;
  }

  std::unique_ptr<Network> network;
  std::vector<std::vector<float>> gradients;
  std::optional<Optimizer> optimizer;
};

// The emulated GPU and a network on it.
struct Gpu {
  Gpu() {
    auto made = CudaNetwork::Create(ddp::Gpu(cuda.api()), cublas, kInputs, kHidden, kSeed);
    REQUIRE_MESSAGE(made.ok(), std::string(made.status().message()));
    network = made->get();
    owner = std::make_unique<WithGradients>(*std::move(made));
  }
  ~Gpu() {
    owner.reset();
    CHECK(LiveCublasHandles() == 0);  // and EmulatedCuda checks its own
  }

  EmulatedCuda cuda{EmulatedLayers()};
  const CublasApi cublas = EmulatedCublas();
  CudaNetwork* network = nullptr;
  std::unique_ptr<WithGradients> owner;
};

WithGradients Cpu() { return WithGradients(std::make_unique<CpuNetwork>(kInputs, kHidden, kSeed)); }

void Step(WithGradients& on, const std::vector<int64_t>& indices, float learning_rate) {
  on.ZeroGradients();
  std::vector<int> order;
  REQUIRE(on.network->Forward(Digits(), indices).ok());
  const float scale = 1.0f / static_cast<float>(indices.size());
  REQUIRE(on.network->Backward(scale, [&](int i) { order.push_back(i); }).ok());
  CHECK(order == std::vector<int>{3, 2, 1, 0});
  REQUIRE(on.optimizer->Step(learning_rate).ok());
}

// The largest difference, as a share of the largest value.
double Difference(const float* a, const float* b, size_t count) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return 1;
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return largest == 0 ? difference : difference / largest;
}

void CheckSameParameters(WithGradients& a, WithGradients& b, double tolerance) {
  REQUIRE(a.network->parameters().size() == b.network->parameters().size());
  const auto my_velocities = a.Velocities(), other_velocities = b.Velocities();
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    const Parameter& mine = a.network->parameters()[i];
    const Parameter& other = b.network->parameters()[i];
    INFO(mine.name);
    CHECK(mine.name == other.name);
    REQUIRE(mine.count == other.count);
    CHECK(Difference(mine.values, other.values, mine.count) <= tolerance);
    CHECK(Difference(my_velocities[i].data(), other_velocities[i].data(), mine.count) <= tolerance);
    CHECK(Difference(mine.gradient, other.gradient, mine.count) <= tolerance);
  }
}

TEST_CASE("cuda network: it starts from the CPU's weights, bit by bit") {
  Gpu gpu;
  WithGradients cpu = Cpu();
  CheckSameParameters(*gpu.owner, cpu, 0);
}

TEST_CASE("cuda network: loss, gradients and weights follow the CPU's to rounding") {
  Gpu gpu;
  WithGradients cpu = Cpu();
  int64_t begin = 0;
  // Batches grow and shrink; 300 images are more than softmax_loss has threads.
  for (const size_t count : {16, 5, 300, 1, 64, 64, 64, 33, 64, 64, 64, 64}) {
    const std::vector<int64_t> indices = Indices(begin, count);
    begin += 11;
    Step(*gpu.owner, indices, 0.05f);
    Step(cpu, indices, 0.05f);
    const Tally mine = gpu.owner->TakeTally(), other = cpu.TakeTally();
    INFO("batch of ", count, ": loss ", mine.loss, ", the CPU's ", other.loss);
    CHECK(std::abs(mine.loss - other.loss) <= 1e-4 * other.loss);
    CHECK(mine.correct == other.correct);
    CheckSameParameters(*gpu.owner, cpu, 1e-4);
  }
}

TEST_CASE("cuda network: equal calls give equal bits") {
  std::vector<float> weights[2];
  for (std::vector<float>& result : weights) {
    Gpu gpu;
    for (int step = 0; step < 3; ++step) Step(*gpu.owner, Indices(step, 48), 0.05f);
    const Parameter& first = gpu.network->parameters()[0];
    result.assign(first.values, first.values + first.count);
  }
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("cuda network: backward adds to the gradients, and losses add up until they are taken") {
  Gpu gpu;
  WithGradients cpu = Cpu();
  for (WithGradients* on : {gpu.owner.get(), &cpu}) {
    on->ZeroGradients();
    for (const int64_t begin : {0, 100}) {
      REQUIRE(on->network->Forward(Digits(), Indices(begin, 20)).ok());
      REQUIRE(on->network->Backward(1.0f / 40, [](int) {}).ok());
    }
  }
  CheckSameParameters(*gpu.owner, cpu, 1e-5);
  const Tally mine = gpu.owner->TakeTally(), other = cpu.TakeTally();
  CHECK(mine.loss == doctest::Approx(other.loss));
  CHECK(mine.loss > 0);
  CHECK(mine.correct == other.correct);
  CHECK(gpu.owner->TakeTally().loss == 0);
  CHECK(gpu.owner->TakeTally().correct == 0);
}

TEST_CASE("cuda network: a batch of no images adds nothing and announces every gradient") {
  Gpu gpu;
  Step(*gpu.owner, Indices(0, 4), 0);
  gpu.owner->TakeTally();
  Step(*gpu.owner, {}, 0);
  for (const std::vector<float>& gradient : gpu.owner->gradients) {
    CHECK(gradient == std::vector<float>(gradient.size()));
  }
  CHECK(gpu.owner->TakeTally().loss == 0);
}

TEST_CASE("cuda network: a weight that is not a number is seen in the loss") {
  Gpu gpu;
  gpu.network->parameters()[kHiddenBias].values[0] = std::nanf("");
  REQUIRE(gpu.network->Forward(Digits(), Indices(0, 4)).ok());
  CHECK(std::isnan(gpu.owner->TakeTally().loss));
}

TEST_CASE("cuda network: once warm, a step neither allocates nor waits for the stream") {
  Gpu gpu;
  Step(*gpu.owner, Indices(0, 32), 0.05f);
  const auto counts = [&] {
    std::vector<int> result;
    for (const char* call : {"cuMemAlloc", "cuMemAllocHost", "cuMemFree", "cuStreamSynchronize",
                             "cuMemcpyDtoHAsync"}) {
      result.push_back(gpu.cuda.Count(call));
    }
    return result;
  };
  const std::vector<int> before = counts();
  for (int step = 1; step < 10; ++step) Step(*gpu.owner, Indices(step, 32 - step), 0.05f);
  CHECK(counts() == before);
}

TEST_CASE("cuda network: every allocation that fails is an error that says for what, how much") {
  EmulatedCuda cuda(EmulatedLayers());
  const CublasApi cublas = EmulatedCublas();
  for (const char* call : {"cuMemAlloc", "cuMemAllocHost"}) {
    cuda.Fail(call, kCudaErrorOutOfMemory);
    const absl::Status failed =
        CudaNetwork::Create(ddp::Gpu(cuda.api()), cublas, kInputs, kHidden, kSeed).status();
    CHECK(failed.code() == absl::StatusCode::kResourceExhausted);
    INFO(std::string(failed.message()));
    CHECK(failed.message() == Contains(" bytes "));
    CHECK(failed.message() == Contains(call));
    cuda.Fail(call, kCudaSuccess);
  }
  CHECK(LiveCublasHandles() == 0);
}

TEST_CASE("cuda network: a launch that fails ends the pass and is named") {
  Gpu gpu;
  const auto ready = [](int) {};
  Step(*gpu.owner, Indices(0, 8), 0.05f);
  for (const char* kernel : {"gather_images", "add_bias_relu", "softmax_loss"}) {
    gpu.cuda.Fail(kernel, ddp::internal::kCudaErrorUnknown);
    const absl::Status failed = gpu.network->Forward(Digits(), Indices(0, 8));
    CHECK(failed.message() == Contains(std::string("cuLaunchKernel of ") + kernel));
    gpu.cuda.Fail(kernel, kCudaSuccess);
  }
  REQUIRE(gpu.network->Forward(Digits(), Indices(0, 8)).ok());
  for (const char* kernel : {"score_slope", "add_column_sums", "relu_slope"}) {
    gpu.cuda.Fail(kernel, ddp::internal::kCudaErrorUnknown);
    std::vector<int> announced;
    const absl::Status failed = gpu.network->Backward(1, [&](int i) { announced.push_back(i); });
    CHECK(failed.message() == Contains(std::string("cuLaunchKernel of ") + kernel));
    CHECK(announced.size() == (kernel == std::string("relu_slope") ? 2 : 0));
    gpu.cuda.Fail(kernel, kCudaSuccess);
  }
  REQUIRE(gpu.network->Backward(1, ready).ok());
  gpu.cuda.Fail("momentum_update", ddp::internal::kCudaErrorUnknown);
  const absl::Status failed = gpu.owner->optimizer->Step(0.1f);
  CHECK(failed.message().substr(0, 14) == "hidden.weight:");
}

}  // namespace
}  // namespace train
