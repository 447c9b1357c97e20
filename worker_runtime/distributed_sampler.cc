#include "ddp/distributed_sampler.h"

#include <algorithm>
#include <numeric>

#include "rendezvous/base/check.h"
#include "worker_runtime/random_permutation.h"

namespace ddp {

DistributedSampler::DistributedSampler(int64_t size, int rank, int world_size,
                                       DistributedSamplerOptions options)
    : size_(size), rank_(rank), world_size_(world_size), options_(options) {
  DDP_CHECK(size >= 0);
  DDP_CHECK(world_size >= 1);
  DDP_CHECK(rank >= 0 && rank < world_size);
  Deal();
}

void DistributedSampler::Deal() {
  std::vector<int64_t> order;
  if (options_.shuffle) {
    order = internal::RandomPermutation(size_, options_.seed + static_cast<uint64_t>(epoch_));
  } else {
    order.resize(static_cast<size_t>(size_));
    std::iota(order.begin(), order.end(), 0);
  }
  const int64_t world = world_size_;
  const int64_t per_rank = options_.drop_last ? size_ / world : (size_ + world - 1) / world;
  indices_.resize(static_cast<size_t>(per_rank));
  // The order repeats from its beginning until every rank has equally many.
  for (int64_t i = 0; i < per_rank; ++i) indices_[i] = order[(rank_ + i * world) % size_];
}

void DistributedSampler::SetEpoch(int64_t epoch) {
  const bool keeps_position = is_restored_ && epoch == epoch_;
  is_restored_ = false;
  if (keeps_position) return;
  position_ = 0;
  if (epoch == epoch_) return;
  epoch_ = epoch;
  Deal();
}

std::vector<int64_t> DistributedSampler::Next(size_t count) {
  const auto begin = indices_.begin() + position_;
  position_ += static_cast<int64_t>(std::min(count, static_cast<size_t>(remaining())));
  return std::vector<int64_t>(begin, indices_.begin() + position_);
}

SamplerState DistributedSampler::state() const {
  return {.epoch = epoch_, .samples_taken = position_ * world_size_};
}

void DistributedSampler::Restore(const SamplerState& state) {
  if (state.epoch != epoch_) {
    epoch_ = state.epoch;
    Deal();
  }
  position_ = std::clamp<int64_t>(state.samples_taken / world_size_, 0, samples_per_rank());
  is_restored_ = true;
}

}  // namespace ddp
