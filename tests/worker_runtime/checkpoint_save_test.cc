// Who may save where, and what.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>

#include "ddp/checkpoint.h"
#include "tests/support/contains.h"
#include "tests/worker_runtime/checkpoint_testing.h"
#include "worker_runtime/checkpoint_file.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

TEST_CASE("checkpoint: of two that were saved at once the larger step is the newer") {
  Alone alone;
  alone.Save(100);
  fs::copy_file(alone.dir.File("checkpoint-000001-step-100.ckpt"),
                alone.dir.File("checkpoint-000001-step-90.ckpt"));
  Model model;
  Checkpoint checkpoint = alone.Open();
  REQUIRE(checkpoint.LoadLatest(model.Tensors()).ok());
  CHECK(checkpoint.latest() == alone.dir.File("checkpoint-000001-step-100.ckpt"));
}

TEST_CASE("checkpoint: a rank 0 that was cut off cannot save once the next round's has begun to") {
  Alone alone;
  Model model;
  Checkpoint cut_off = alone.Open();
  REQUIRE(cut_off.Save(State(10), model.Tensors()).ok());
  Checkpoint next = alone.Open();
  REQUIRE(next.LoadLatest(model.Tensors()).ok());
  // To load is not to save: an evaluation beside the training does it, too.
  REQUIRE(cut_off.Save(State(20), model.Tensors()).ok());
  REQUIRE(next.CheckWritable().ok());
  const std::set<std::string> names = Names(alone.dir.path());
  const absl::Status status = cut_off.Save(State(30), model.Tensors());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == Contains("another run has begun to save"));
  CHECK(absl::IsFailedPrecondition(cut_off.CheckWritable()));
  CHECK(absl::IsFailedPrecondition(cut_off.SetEarlierAside().status()));
  CHECK(Names(alone.dir.path()) == names);
  CHECK(next.Save(State(11), model.Tensors()).ok());
  CHECK(next.Save(State(12), model.Tensors()).ok());
  int writers = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(alone.dir.path())) {
    writers += entry.path().filename().string().starts_with(".writer-") ? 1 : 0;
  }
  CHECK(writers == 1);
}

TEST_CASE("checkpoint: nor where the directory was removed, and made anew by the next") {
  Alone alone;
  Model model;
  for (int i = 0; i < 3; ++i) alone.Save(i);
  Checkpoint cut_off = alone.Open();
  REQUIRE(cut_off.Save(State(10), model.Tensors()).ok());
  const auto remove = [&alone] {
    for (const fs::directory_entry& entry : fs::directory_iterator(alone.dir.path())) {
      fs::remove(entry.path());
    }
  };
  remove();
  CHECK(cut_off.Save(State(11), model.Tensors()).ok());  // nobody else saves there
  remove();
  alone.Save(1);
  alone.Save(2);
  CHECK(absl::IsFailedPrecondition(cut_off.Save(State(12), model.Tensors())));
}

TEST_CASE("checkpoint: one that is cut off while it writes gives its file no name") {
  Alone alone;
  Model model;
  const auto cut_off = [] { return absl::FailedPreconditionError("cut off"); };
  const absl::Status status = internal::WriteCheckpointFile(
      alone.dir.path(), "checkpoint-000001-step-1.ckpt", State(1), model.Tensors(), cut_off);
  CHECK(status.message() == "cut off");
  CHECK(Names(alone.dir.path()).empty());
}

TEST_CASE("checkpoint: what could not be read again is refused when it is saved") {
  Alone alone;
  Model model;
  alone.Save(1);
  TrainingState state = State(2);
  state.extra["table"] = std::string(65 << 20, 'x');
  const absl::Status status = alone.Open().Save(state, model.Tensors());
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == Contains("more than 67108864"));
  CHECK(Names(alone.dir.path()) == std::set<std::string>{"checkpoint-000001-step-1.ckpt"});
}

TEST_CASE("checkpoint: a directory is made with those above it") {
  Alone alone;
  Model model;
  Checkpoint checkpoint(alone.group.communicator(0), {.directory = alone.dir.File("a/b/c/")});
  CHECK(checkpoint.Save(State(1), model.Tensors()).ok());
  CHECK(fs::exists(alone.dir.File("a/b/c/checkpoint-000001-step-1.ckpt")));
}

}  // namespace
}  // namespace ddp
