#include "tests/worker_runtime/torch_ddp.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "tests/support/files.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"

namespace ddp::testing {
namespace {

using Kind = ScriptStep::Kind;

// What the script's Python has.
float GradientOf(int rank, int number, int id, size_t i) {
  return static_cast<float>(i) * 0.25f + static_cast<float>(number) * 0.5f +
         static_cast<float>(rank * 2 + id);
}

// Adds the gradients and announces them.
absl::Status Backward(DistributedDataParallel& ddp, int rank, int number, const std::string& used) {
  for (const char digit : used) {
    const int id = digit - '0';
    float* gradient = static_cast<float*>(ddp.GradientPtr(id));
    for (size_t i = 0; i < kScriptSizes[static_cast<size_t>(id)]; ++i) {
      gradient[i] += GradientOf(rank, number, id, i);
    }
    if (absl::Status status = ddp.GradientReady(id); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<ScriptResult> RunRank(const std::vector<ScriptStep>& script,
                                     Communicator& communicator,
                                     const DistributedDataParallelOptions& options,
                                     const CommHook& hook, bool owns_gradients) {
  std::vector<std::vector<float>> weights, gradients;
  for (const size_t size : kScriptSizes) weights.emplace_back(size, 0.0f);
  gradients = weights;
  DistributedDataParallel ddp(communicator, options);
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string name = "weights." + std::to_string(i);
    const size_t count = weights[i].size();
    const Piece own{gradients[i].data(), count};
    owns_gradients ? ddp.AddParameter(name, weights[i].data(), count, DType::kFloat32, own)
                   : ddp.AddParameter(name, weights[i].data(), count, DType::kFloat32);
  }
  std::vector<float> state(2, 0.0f);
  ddp.AddBuffer("state", state.data(), state.size(), DType::kFloat32);
  if (absl::Status status = ddp.Finalize(); !status.ok()) return status;
  if (hook != nullptr) {
    if (absl::Status status = ddp.RegisterCommHook(hook); !status.ok()) return status;
  }
  std::optional<DistributedDataParallel::JoinGuard> join;
  ScriptResult result;
  int number = 0;
  for (const ScriptStep& step : script) {
    const bool is_pass = step.kind == Kind::kPass || step.kind == Kind::kNoSyncPass;
    number += is_pass ? 1 : 0;
    absl::Status status;
    if (step.kind == Kind::kZeroGrad) status = ddp.ZeroGrad();
    if (step.kind == Kind::kJoinInitial || step.kind == Kind::kJoinEffective) {
      auto joined = ddp.Join(step.kind == Kind::kJoinInitial);
      status = joined.status();
      if (joined.ok()) join.emplace(*std::move(joined));
    }
    if (!status.ok()) return status;
    const int rank = communicator.rank();
    if (!is_pass || step.used[rank] == "-") continue;
    const auto guard = ddp.NoSync(step.kind == Kind::kNoSyncPass);
    status = ddp.BroadcastBuffers();
    for (size_t i = 0; i < state.size(); ++i) state[i] += GradientOf(rank, number, 2, i);
    if (status.ok()) status = Backward(ddp, rank, number, step.used[rank]);
    if (status.ok()) status = ddp.Finish();
    if (!status.ok()) return status;
    result.insert(result.end(), state.begin(), state.end());
    for (size_t i = 0; i < kScriptSizes.size(); ++i) {
      const float* gradient = static_cast<float*>(ddp.GradientPtr(static_cast<int>(i)));
      result.insert(result.end(), gradient, gradient + kScriptSizes[i]);
      for (size_t k = 0; join.has_value() && step.kind == Kind::kPass && k < kScriptSizes[i]; ++k) {
        weights[i][k] -= 0.5f * gradient[k];
      }
    }
  }
  if (!join.has_value()) return result;
  if (absl::Status status = join->Wait(); !status.ok()) return status;
  result.insert(result.end(), state.begin(), state.end());
  for (const auto& weight : weights) result.insert(result.end(), weight.begin(), weight.end());
  return result;
}

std::string LineOf(const ScriptStep& step) {
  if (step.kind == Kind::kZeroGrad) return "zero\n";
  if (step.kind == Kind::kJoinInitial) return "join initial\n";
  if (step.kind == Kind::kJoinEffective) return "join effective\n";
  return std::string("pass ") + (step.kind == Kind::kPass ? "sync " : "nosync ") + step.used[0] +
         " " + step.used[1] + "\n";
}

}  // namespace

std::vector<absl::StatusOr<ScriptResult>> RunScript(const std::vector<ScriptStep>& script,
                                                    DistributedDataParallelOptions options,
                                                    const CommHook& hook, bool owns_gradients) {
  options.bucket_cap_bytes = options.first_bucket_bytes = 24;
  std::vector<absl::StatusOr<ScriptResult>> results(2);
  ddprun::testing::ThreadGroup group(2);
  group.Run([&](Communicator& communicator) {
    results[communicator.rank()] = RunRank(script, communicator, options, hook, owns_gradients);
  });
  return results;
}

std::vector<ScriptResult> RunTorchScript(const std::vector<ScriptStep>& script,
                                         const std::string& options, bool has_hook) {
  const ddprun::testing::TempDir folder;
  {
    std::ofstream file(folder.File("script"));
    file << "options " << options << "\n" << (has_hook ? "hook\n" : "");
    for (const ScriptStep& step : script) file << LineOf(step);
  }
  ddprun::testing::Subprocess python({ddprun::testing::FindTorchPython().python,
                                      ddprun::testing::Runfile("tests/worker_runtime/torch_ddp.py"),
                                      folder.path().string()});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  std::vector<ScriptResult> results;
  for (const char* name : {"values.0", "values.1"}) {
    const std::string bytes = ddprun::testing::ReadFile(folder.File(name));
    ScriptResult& result = results.emplace_back(bytes.size() / sizeof(float));
    std::memcpy(result.data(), bytes.data(), result.size() * sizeof(float));
  }
  return results;
}

void CheckAsTorch(const std::vector<ScriptStep>& script, const std::string& torch_options,
                  const DistributedDataParallelOptions& options, const CommHook& hook,
                  bool owns_gradients) {
  const auto is = [&script](Kind kind) {
    return std::count_if(script.begin(), script.end(),
                         [kind](const ScriptStep& step) { return step.kind == kind; });
  };
  const size_t passes = static_cast<size_t>(is(Kind::kPass) + is(Kind::kNoSyncPass));
  const bool has_join = is(Kind::kJoinInitial) + is(Kind::kJoinEffective) > 0;
  const auto torch = RunTorchScript(script, torch_options, hook != nullptr);
  const auto ours = RunScript(script, options, hook, owns_gradients);
  for (size_t rank : {0, 1}) {
    CAPTURE(rank);
    REQUIRE_MESSAGE(ours[rank].ok(), ours[rank].status().ToString());
    // In a join a rank may have fewer passes than steps.
    if (has_join) CHECK(torch[rank].size() >= kScriptPassSize);
    if (!has_join) CHECK(torch[rank].size() == passes * kScriptPassSize);
    CHECK(*ours[rank] == torch[rank]);
  }
}

}  // namespace ddp::testing
