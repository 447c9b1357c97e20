// The network on the processor, by Eigen.
#ifndef DDPRUN_EXAMPLES_TRAIN_CPU_NETWORK_H_
#define DDPRUN_EXAMPLES_TRAIN_CPU_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/train/initial_weights.h"
#include "examples/train/network.h"

namespace train {

// Eigen's, as it was compiled in.
std::string EigenVersion();

// Every call is done when it returns, and none fails.
class CpuNetwork : public Network {
 public:
  CpuNetwork(int inputs, int hidden, uint64_t seed);
  ~CpuNetwork() override;

  std::vector<Parameter>& parameters() override { return parameters_; }
  absl::Status Forward(const ImageSet& images, std::span<const int64_t> indices) override;
  absl::Status Backward(float scale, const std::function<void(int)>& ready) override;
  absl::Status Update(const Weights& weights, float learning_rate) override;
  absl::StatusOr<float*> MakeZeros(const char* what, size_t count) override;
  absl::StatusOr<Tally> TakeTally() override;
  ddp::Stream stream() const override { return nullptr; }
  absl::Status CopyOut(const float* device, float* host, size_t count) override;
  absl::Status CopyIn(const float* host, float* device, size_t count) override;

 private:
  struct Activations;  // Eigen matrices, kept out of this header

  const int inputs_;
  const int hidden_;
  std::vector<InitialWeights> weights_;  // by now trained; what the parameters point to
  std::vector<Parameter> parameters_;
  std::vector<std::vector<float>> zeros_;  // that MakeZeros() made
  std::unique_ptr<Activations> last_;
  Tally tally_;
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_CPU_NETWORK_H_
