// The network on the emulated GPU beside the CPU's.
#include "bench/gpu/cuda_device.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/bench/gpu/emulated_mlp.h"
#include "tests/support/emulated_cuda.h"

namespace ddprun::bench {
namespace {

using testing::EmulatedCuda;

// No width is a whole number of tiles.
constexpr MlpShape kOdd{.inputs = 19, .hidden = 33, .hidden_layers = 2, .classes = 5};

// A device with its parameters, and gradients beside it.
struct Net {
  explicit Net(std::unique_ptr<Device> opened, int batch_rows)
      : device(std::move(opened)), rows(batch_rows) {
    CHECK(device->PutBatches(samples, 3, rows).ok());
    CHECK(PutParameters(*device, parameters, values, velocities).ok());
    weights.assign(values.begin(), values.end());
    for (const MlpParameter& parameter : parameters) {
      gradients.emplace_back(parameter.values.size());
      places.push_back(gradients.back().data());
    }
  }
  double Step(int batch) {
    for (std::vector<float>& gradient : gradients) gradient.assign(gradient.size(), 0);
    CHECK(device->Forward(device->Batch(batch), rows, weights).ok());
    CHECK(device->LossAndSlope(device->scores(), batch, 2).ok());
    order.clear();
    CHECK(
        device->Backward(device->scores(), weights, places, [this](int id) { order.push_back(id); })
            .ok());
    for (size_t i = 0; i < values.size(); ++i) {
      CHECK(device->Update(values[i], places[i], velocities[i], gradients[i].size()).ok());
    }
    CHECK(device->Wait().ok());
    return device->Loss().value();
  }

  const std::vector<MlpParameter> parameters = InitialParameters(kOdd);
  const Samples samples = MakeSamples(kOdd, kBatchesOfSamples* kGlobalBatch);
  const std::unique_ptr<Device> device;
  const int rows;
  std::vector<float*> values, velocities, places;
  std::vector<const float*> weights;
  std::vector<std::vector<float>> gradients;
  std::vector<int> order;
};

void CheckEqual(const float* got, const float* expected, size_t count) {
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    if (got[i] != doctest::Approx(expected[i]).epsilon(1e-4).scale(1e-3)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("cuda device: passes and updates are the CPU's, of rows that fill no tile and of one") {
  for (const int rows : {1, 21}) {
    CAPTURE(rows);
    EmulatedCuda cuda(testing::EmulatedMlp());
    Net cpu(OpenDevice(kOdd, -1).value(), rows);
    Net gpu(MakeCudaDevice(ddp::Gpu(cuda.api()), kOdd).value(), rows);
    for (const int batch : {0, 7}) {
      CAPTURE(batch);
      CHECK(gpu.Step(batch) == doctest::Approx(cpu.Step(batch)).epsilon(1e-5));
      CHECK(gpu.order == std::vector<int>{5, 4, 3, 2, 1, 0});
      for (size_t i = 0; i < cpu.parameters.size(); ++i) {
        CAPTURE(cpu.parameters[i].name);
        CheckEqual(gpu.places[i], cpu.places[i], cpu.gradients[i].size());
        CheckEqual(gpu.values[i], cpu.values[i], cpu.gradients[i].size());
      }
    }
  }
}

TEST_CASE("cuda device: the double's quick products are those of the kernels") {
  EmulatedCuda cuda(testing::QuickMlp());
  Net cpu(OpenDevice(kOdd, -1).value(), 21);
  Net gpu(MakeCudaDevice(ddp::Gpu(cuda.api()), kOdd).value(), 21);
  CHECK(gpu.Step(0) == doctest::Approx(cpu.Step(0)).epsilon(1e-5));
  for (size_t i = 0; i < cpu.parameters.size(); ++i) {
    CheckEqual(gpu.places[i], cpu.places[i], cpu.gradients[i].size());
  }
}

TEST_CASE("cuda device: its bytes are what the driver was asked for") {
  EmulatedCuda cuda(testing::EmulatedMlp());
  Net net(MakeCudaDevice(ddp::Gpu(cuda.api()), kOdd).value(), 2);
  net.Step(0);
  size_t floats = 2 * BytesOf(net.parameters) / sizeof(float);  // and their momentum
  floats += size_t{2} * kBatchesOfSamples * kOdd.inputs;
  floats += size_t{2} * (2 * kOdd.hidden + kOdd.classes) + size_t{4} * kOdd.hidden;
  CHECK(net.device->bytes() == floats * sizeof(float) + 2 * kBatchesOfSamples + 2 * sizeof(double));
}

TEST_CASE("cuda device: what the driver refuses is said with what it was for") {
  EmulatedCuda cuda(testing::EmulatedMlp());
  cuda.Fail("cuModuleLoadData", ddp::internal::kCudaErrorOutOfMemory);
  const auto made = MakeCudaDevice(ddp::Gpu(cuda.api()), kOdd);
  REQUIRE(!made.ok());
  CHECK(std::string(made.status().message()).find("load the kernels of mlp.cu: ") == 0);
}

}  // namespace
}  // namespace ddprun::bench
