// Parameters without a gradient: found on this rank, agreed on by all.
#ifndef DDPRUN_WORKER_RUNTIME_UNUSED_PARAMETERS_H_
#define DDPRUN_WORKER_RUNTIME_UNUSED_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"
#include "worker_runtime/gradient_memory.h"

namespace ddp::internal {

// A parameter is used when it got a gradient since the last synchronised pass, also in one without
// synchronisation. A bucket is reduced in place with the gradients of unused parameters in it, so
// these are kept aside and come back where no rank has used the parameter. Host memory only.
//
// MarkUsed() during passes; then, in this order, Keep() before the rest of the buckets is launched,
// Launch() behind them, Restore() once they are reduced. In a static graph the first such pass
// settles who uses what: later ones are Keep() before any bucket is launched, and Restore().
class UnusedParameters {
 public:
  // Borrows the communicator and the gradients' memory.
  UnusedParameters(Communicator& communicator, const GradientMemory& memory, bool is_static);

  void MarkUsed(int parameter) {
    if (!is_settled_) is_used_[static_cast<size_t>(parameter)] = 1;
  }
  // Copies the gradients of the parameters that this rank has not used, or, once it is settled, no
  // rank has.
  void Keep();
  // Starts the all-reduce that tells which parameters any rank has used: a byte for each.
  void Launch();
  // REQUIRES: Launch() was called, or it is settled. Waits for that, and puts back what no rank has
  // used.
  absl::Status Restore();

  bool is_settled() const { return is_settled_; }
  // By parameter. REQUIRES: is_settled().
  const std::vector<bool>& is_unused_here() const { return is_unused_here_; }

 private:
  struct Slot {
    char* data;
    size_t bytes;
  };

  Communicator& communicator_;
  const bool is_static_;
  std::vector<Slot> slots_;        // by parameter
  std::vector<uint8_t> is_used_;   // by parameter; on any rank, once it is reduced or settled
  std::vector<size_t> kept_;       // parameters
  std::vector<char> kept_values_;  // their gradients, one after the other
  std::unique_ptr<Work> work_;
  bool is_settled_ = false;
  std::vector<bool> is_unused_here_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_UNUSED_PARAMETERS_H_
