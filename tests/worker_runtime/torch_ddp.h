// A script of backward passes of two ranks, for our DistributedDataParallel and for PyTorch's.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_TORCH_DDP_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_TORCH_DDP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/distributed_data_parallel.h"

namespace ddp::testing {

inline const std::vector<size_t> kScriptSizes = {3, 5, 2, 4};
inline constexpr size_t kScriptPassSize = 2 + 14;  // of its result

struct ScriptStep {
  // A join is the first step, and lasts to the end.
  enum class Kind { kPass, kNoSyncPass, kZeroGrad, kJoinInitial, kJoinEffective };
  Kind kind = Kind::kPass;
  // By rank: the parameters with a gradient, as digits, one for each time; "-": no batch.
  std::string used[2] = {};
};

// The buffer of two elements and all gradients of one rank behind every pass, one after the other;
// behind a join the buffer and the weights, which take a step after every pass in it.
using ScriptResult = std::vector<float>;

// By rank. `owns_gradients`: they are in memory of the script's.
std::vector<absl::StatusOr<ScriptResult>> RunScript(const std::vector<ScriptStep>& script,
                                                    DistributedDataParallelOptions options,
                                                    const CommHook& hook = {},
                                                    bool owns_gradients = false);
// The same by torch; `options` are its own: "name=1 name=0"; with `has_hook` a
// communication hook sums. REQUIRES: there is a torch,
// and each rank uses a parameter in every pass.
std::vector<ScriptResult> RunTorchScript(const std::vector<ScriptStep>& script,
                                         const std::string& options, bool has_hook = false);

// That both give the same bits on both ranks. `hook` sums, if there is one.
void CheckAsTorch(const std::vector<ScriptStep>& script, const std::string& torch_options,
                  const DistributedDataParallelOptions& options, const CommHook& hook = {},
                  bool owns_gradients = false);

}  // namespace ddp::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_TORCH_DDP_H_
