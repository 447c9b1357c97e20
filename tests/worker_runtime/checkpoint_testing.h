// A model of three tensors, and checkpoints of it in a directory of the test's own.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_TESTING_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_TESTING_H_

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "ddp/checkpoint.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_group.h"

namespace ddp {

struct Model {
  std::vector<float> weights = {1.5f, -2.25f, 3e-20f};
  std::vector<double> velocity = {0.1, 0.2};
  std::vector<int64_t> empty;

  std::vector<Tensor> Tensors() {
    return {{"weights", weights.data(), weights.size(), DType::kFloat32},
            {"velocity", velocity.data(), velocity.size(), DType::kFloat64},
            {"empty", empty.data(), empty.size(), DType::kInt64}};
  }
  bool operator==(const Model&) const = default;
};

inline Model Blank() { return {.weights = {0, 0, 0}, .velocity = {0, 0}, .empty = {}}; }

inline TrainingState State(int64_t step) {
  return {.step = step,
          .sampler = {.epoch = 4, .samples_taken = 1234},
          .extra = {{"random", std::string("\0\xff\n", 3)}, {"best", "0.93"}}};
}

// But for the number of who saves last.
inline std::set<std::string> Names(const std::filesystem::path& dir) {
  std::set<std::string> names;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".writer-")) names.insert(name);
  }
  return names;
}

// One rank's checkpoints in a directory of the test's own.
struct Alone {
  ddprun::testing::TempDir dir;
  ddprun::testing::ThreadGroup group{1};

  Checkpoint Open(int keep = 3) {
    return Checkpoint(group.communicator(0), {.directory = dir.path().string(), .keep = keep});
  }
  void Save(int64_t step, Model model = {}) {
    Checkpoint checkpoint = Open();
    const absl::Status status = checkpoint.Save(State(step), model.Tensors());
    REQUIRE_MESSAGE(status.ok(), status.message());
  }
};

}  // namespace ddp

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_TESTING_H_
