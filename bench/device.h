// What training does on a device, the host or a GPU: memory, and the network's passes over it.
#ifndef DDPRUN_BENCH_DEVICE_H_
#define DDPRUN_BENCH_DEVICE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/mlp.h"
#include "ddp/communicator.h"

namespace ddprun::bench {

// All rows train this: the same network, samples, and batch over all ranks together.
inline constexpr int kGlobalBatch = 128;
// The samples are this many batches, which come one after the other, again and again.
inline constexpr int kBatchesOfSamples = 8;
inline constexpr MlpShape kShape;

// No wait for a device or another rank takes as long.
inline constexpr std::chrono::seconds kGroupTimeout{60};

// Pointers are to the device's memory. On a GPU calls queue their work on its stream; Wait() and
// Loss() wait for it. One thread at a time calls it; on a GPU that thread has its context current.
class Device {
 public:
  virtual ~Device() = default;

  // Memory that lives as long as this; its contents are `values`.
  virtual absl::StatusOr<float*> Put(const char* what, std::span<const float> values) = 0;
  // Rows `begin` to `begin` + `rows` - 1 of each batch. Borrows the samples.
  virtual absl::Status PutBatches(const Samples& samples, int begin, int rows) = 0;
  // The inputs of those rows.
  virtual const float* Batch(int batch) const = 0;

  virtual absl::Status Forward(const float* inputs, int rows,
                               std::span<const float* const> weights) = 0;
  virtual float* scores() = 0;
  // Turns the scores of the rows of a batch into `factor` times the slopes of the loss, which is
  // the mean over the global batch.
  virtual absl::Status LossAndSlope(float* scores, int batch, float factor) = 0;
  // What the last call of LossAndSlope found.
  virtual absl::StatusOr<double> Loss() = 0;
  // Adds to the gradients, the last layer's first.
  virtual absl::Status Backward(const float* slopes, std::span<const float* const> weights,
                                std::span<float* const> gradients,
                                const std::function<void(int)>& ready) = 0;
  virtual absl::Status Update(float* values, const float* gradient, float* velocity,
                              size_t count) = 0;

  // Null on the host.
  virtual ddp::Stream stream() const { return nullptr; }
  // From now on work is queued there; what was queued before is done.
  virtual void UseStream(ddp::Stream) {}
  virtual absl::Status Wait() { return absl::OkStatus(); }
  // Of what lies here: all that was put, and what the network keeps between its passes.
  virtual size_t bytes() const = 0;
};

// The GPU of this ordinal, whose context becomes current on this thread; the host's memory and the
// calling thread for -1.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const MlpShape& shape, int gpu);

// What training keeps of each parameter beside its gradient.
absl::Status PutParameters(Device& device, const std::vector<MlpParameter>& parameters,
                           std::vector<float*>& values, std::vector<float*>& velocities);
size_t BytesOf(const std::vector<MlpParameter>& parameters);

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_DEVICE_H_
