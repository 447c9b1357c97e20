// Parameters without a gradient: found on this rank, agreed on by all.
#ifndef DDPRUN_WORKER_RUNTIME_UNUSED_PARAMETERS_H_
#define DDPRUN_WORKER_RUNTIME_UNUSED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "worker_runtime/gradient_memory.h"

namespace ddp::internal {

// A parameter is used when it got a gradient since the last synchronised pass, also in one without
// synchronisation. A bucket is reduced in place with the gradients of unused parameters in it, so
// these are kept aside and come back where no rank has used the parameter.
//
// MarkUsed() during passes; then, in this order, Keep() before the rest of the buckets is launched,
// Launch() behind them, Restore() once they are reduced. In a static graph the first such pass
// settles who uses what: later ones are Keep() before any bucket is launched, and Restore().
//
// Who used what is bookkeeping of the host, so the ranks exchange it in host memory, on a GPU, too:
// Restore() then waits for the other ranks' hosts and for no device. The gradients are copied in
// the order of streams, to memory that is allocated once.
class UnusedParameters {
 public:
  // Collective. Borrows the communicator and the gradients' memory. Errors: the communicator's.
  static absl::StatusOr<std::unique_ptr<UnusedParameters>> Create(Communicator& communicator,
                                                                  const GradientMemory& memory,
                                                                  bool is_static);
  // Waits for the exchange, until its timeout, if it was launched and not waited for.
  ~UnusedParameters();
  UnusedParameters(const UnusedParameters&) = delete;
  UnusedParameters& operator=(const UnusedParameters&) = delete;

  void MarkUsed(int parameter) {
    if (!is_settled_) is_used_[static_cast<size_t>(parameter)] = 1;
  }
  // Copies the gradients of the parameters that this rank has not used, or, once it is settled, no
  // rank has: at once (CPU) or in the order of `stream` (CUDA). In a static graph no bucket of the
  // first pass may be launched yet; then the exchange comes first, so that no more is kept than no
  // rank uses. Errors: the communicator's, the driver's.
  absl::Status Keep(Stream stream);
  // Starts the exchange, unless it is settled: a byte for each parameter.
  void Launch();
  // REQUIRES: Launch() was called, or it is settled. Waits for that, and puts back what no rank has
  // used: at once (CPU) or in the order of `stream` (CUDA), which comes after the copies of Keep().
  absl::Status Restore(Stream stream);

  // Whether any rank had used it when the last pass ended.
  bool WasUsed(int parameter) const {
    const auto i = static_cast<size_t>(parameter);
    return i < was_used_.size() && was_used_[i] != 0;
  }
  bool is_settled() const { return is_settled_; }
  // By parameter. REQUIRES: is_settled().
  const std::vector<bool>& is_unused_here() const { return is_unused_here_; }

 private:
  struct Slot {
    char* data;
    size_t bytes;
  };

  UnusedParameters(Communicator& communicator, const GradientMemory& memory, bool is_static);
  bool is_on_gpu() const { return communicator_.device_type() == DeviceType::kCuda; }
  absl::Status AwaitExchange();
  absl::Status Reserve(size_t bytes);
  char* Aside();
  absl::Status Copy(void* to, const void* from, size_t bytes, Stream stream);

  Communicator& communicator_;
  const bool is_static_;
  std::vector<Slot> slots_;        // by parameter
  std::vector<uint8_t> is_used_;   // by parameter; on any rank, once it is reduced or settled
  std::vector<uint8_t> was_used_;  // by parameter, on any rank; empty before the end of a pass
  std::vector<size_t> kept_;       // parameters
  // Their gradients, one after the other.
  std::vector<char> kept_on_host_;          // CPU
  std::unique_ptr<Buffer> kept_on_device_;  // CUDA; null when there is nothing to keep
  std::unique_ptr<Work> work_;
  bool is_settled_ = false;
  std::vector<bool> is_unused_here_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_UNUSED_PARAMETERS_H_
