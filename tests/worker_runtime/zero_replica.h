// A model on one rank that is trained with whole or sharded state of its optimizer.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ZERO_REPLICA_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ZERO_REPLICA_H_

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/checkpoint.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/zero_redundancy_optimizer.h"
#include "tests/worker_runtime/comm/elements.h"

namespace ddp::testing {

struct Size {
  size_t count;
  DType dtype = DType::kFloat32;
};

inline double Load(DType dtype, const void* data, size_t i) {
  if (dtype == DType::kFloat64) return static_cast<const double*>(data)[i];
  if (dtype == DType::kFloat32) return static_cast<const float*>(data)[i];
  return FromBFloat16Bits(static_cast<const uint16_t*>(data)[i]);
}

inline void Store(DType dtype, void* data, size_t i, double value) {
  if (dtype == DType::kFloat64) {
    static_cast<double*>(data)[i] = value;
  } else if (dtype == DType::kFloat32) {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  } else {
    static_cast<uint16_t*>(data)[i] = ToBFloat16Bits(static_cast<float>(value));
  }
}

struct Rates {
  double learning = 0.1;
  double momentum = 0.9;
};

// SGD with momentum, in float: the rank's own of what is updated here.
inline void Momentum(DType dtype, void* values, const void* gradient, size_t count, float* state,
                     Rates rates) {
  for (size_t i = 0; i < count; ++i) {
    state[i] = static_cast<float>(rates.momentum * state[i] + Load(dtype, gradient, i));
    Store(dtype, values, i, Load(dtype, values, i) - rates.learning * state[i]);
  }
}

inline double RandomGradient(int rank, int step, size_t id, size_t i) {
  const uint64_t random =
      Mix(static_cast<uint64_t>(rank * 1000 + step) * 7919 + id * 31 + i * 1000003);
  return std::ldexp(static_cast<double>(random % 2001) - 1000, -static_cast<int>(random >> 60)) / 3;
}

using Gradient = std::function<double(int rank, int step, size_t id, size_t i)>;

// Its state is `full` where options do not shard it, else `state`.
class Replica {
 public:
  Replica(Communicator& communicator, std::vector<Size> sizes,
          DistributedDataParallelOptions options)
      : ddp(communicator, options),
        rank_(communicator.rank()),
        sizes_(std::move(sizes)),
        is_sharded_(options.shard_gradients) {
    for (size_t id = 0; id < sizes_.size(); ++id) {
      const auto [count, dtype] = sizes_[id];
      values.emplace_back(count * SizeOf(dtype));
      for (size_t i = 0; i < count; ++i) {
        Store(dtype, values[id].data(), i, 0.5 * static_cast<double>(i % 64));
      }
      full.emplace_back(count);
      ddp.AddParameter("p" + std::to_string(id), values[id].data(), count, dtype);
    }
  }

  absl::Status Start() {
    absl::Status status = ddp.Finalize();
    if (!status.ok() || !is_sharded_) return status;
    auto made = ZeroRedundancyOptimizer::Create(ddp);
    if (!made.ok()) return made.status();
    zero.emplace(*std::move(made));
    state.resize(zero->state_count());
    return absl::OkStatus();
  }

  absl::Status Backward(int step, const Gradient& gradient) {
    absl::Status status;
    for (size_t id = sizes_.size(); id-- > 0;) {
      if (!is_used(rank_, step, id)) continue;
      const auto [count, dtype] = sizes_[id];
      void* at = ddp.GradientPtr(static_cast<int>(id));
      for (size_t i = 0; i < count; ++i) {
        Store(dtype, at, i, Load(dtype, at, i) + gradient(rank_, step, id, i));
      }
      status.Update(ddp.GradientReady(static_cast<int>(id)));
    }
    return status;
  }

  absl::Status Update(Rates rates = {}) {
    if (is_sharded_) {
      return zero->Step([&](const ParameterShard& shard) {
        Momentum(shard.dtype, shard.values, shard.gradient, shard.count, &state[shard.offset],
                 rates);
        return absl::OkStatus();
      });
    }
    for (size_t id = 0; id < sizes_.size(); ++id) {
      Momentum(sizes_[id].dtype, values[id].data(), ddp.GradientPtr(static_cast<int>(id)),
               sizes_[id].count, full[id].data(), rates);
    }
    return absl::OkStatus();
  }

  // Two passes of backward a step, the first of them local.
  absl::Status Train(int begin, int end, const Gradient& gradient = RandomGradient,
                     Rates rates = {}) {
    absl::Status status;
    for (int step = begin; status.ok() && step < end; ++step) {
      status = ddp.ZeroGrad();
      {
        const auto local = ddp.NoSync();
        status.Update(Backward(100 + step, gradient));
      }
      status.Update(Backward(step, gradient));
      status.Update(ddp.Finish());
      if (status.ok()) status = Update(rates);
    }
    return status;
  }

  // Parameters and whole state, which is put together where it is sharded.
  std::vector<Tensor> Tensors() {
    std::vector<Tensor> tensors = StateTensors();
    for (size_t id = 0; id < sizes_.size(); ++id) {
      tensors.push_back(
          {"p" + std::to_string(id), values[id].data(), sizes_[id].count, sizes_[id].dtype});
    }
    return tensors;
  }
  std::vector<Tensor> StateTensors() {
    std::vector<Tensor> tensors;
    for (size_t id = 0; id < sizes_.size(); ++id) {
      tensors.push_back({"p" + std::to_string(id) + ".momentum", full[id].data(), full[id].size(),
                         DType::kFloat32});
    }
    return tensors;
  }

  // Whether a pass has a gradient for a parameter.
  std::function<bool(int rank, int step, size_t id)> is_used = [](int, int, size_t) {
    return true;
  };
  DistributedDataParallel ddp;
  std::optional<ZeroRedundancyOptimizer> zero;
  std::vector<std::vector<char>> values;
  std::vector<std::vector<float>> full;  // momentum of whole parameters
  std::vector<float> state;              // momentum of this rank's shards

 private:
  const int rank_;
  const std::vector<Size> sizes_;
  const bool is_sharded_;
};

// Several buckets of each type, tensors that lie across parts and buckets without elements.
inline const std::vector<Size> kMixed = {
    {1000}, {17, DType::kBFloat16}, {0},   {3001, DType::kBFloat16},
    {1},    {77, DType::kFloat64},  {2500}};

inline DistributedDataParallelOptions Options(
    bool is_sharded, GradientCompression compression = GradientCompression::kNone) {
  return {.bucket_cap_bytes = 4096,
          .first_bucket_bytes = 1024,
          .compression = compression,
          .shard_gradients = is_sharded};
}

}  // namespace ddp::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ZERO_REPLICA_H_
