#include "ddp/checkpoint.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <set>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/rank_threads.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_group.h"
#include "tests/worker_runtime/checkpoint_testing.h"

namespace ddp {
namespace {

using ddprun::testing::ReadFile;
using ddprun::testing::SkipTest;
using ddprun::testing::TempDir;
using ddprun::testing::ThreadGroup;
using ddprun::testing::WriteFile;
namespace fs = std::filesystem;

TEST_CASE("checkpoint: what was saved is loaded, bit for bit") {
  Alone alone;
  alone.Save(77);
  Model loaded = Blank();
  Checkpoint checkpoint = alone.Open();
  const auto state = checkpoint.LoadLatest(loaded.Tensors());
  REQUIRE_MESSAGE(state.ok(), state.status().message());
  REQUIRE(state->has_value());
  CHECK((*state)->step == 77);
  CHECK((*state)->sampler.epoch == 4);
  CHECK((*state)->sampler.samples_taken == 1234);
  CHECK((*state)->extra == State(0).extra);
  CHECK(loaded == Model{});
  CHECK(checkpoint.latest() == alone.dir.File("checkpoint-000001-step-77.ckpt"));
  CHECK(checkpoint.refused().empty());
}

TEST_CASE("checkpoint: an empty or missing directory holds none") {
  Alone alone;
  Model model;
  CHECK_FALSE(alone.Open().LoadLatest(model.Tensors())->has_value());
  Checkpoint missing(alone.group.communicator(0), {.directory = alone.dir.File("a/b")});
  CHECK_FALSE(missing.LoadLatest(model.Tensors())->has_value());
  CHECK(missing.Save(State(1), model.Tensors()).ok());
  CHECK(missing.LoadLatest(model.Tensors())->has_value());
}

TEST_CASE("checkpoint: keeps the newest N and leaves no temporary file") {
  Alone alone;
  Model model;
  Checkpoint checkpoint = alone.Open(/*keep=*/2);
  WriteFile(alone.dir.File("notes.txt"), "mine");
  WriteFile(alone.dir.File(".checkpoint-000009-step-9.ckpt.tmp-123"), "half");  // of a dead run
  for (const int64_t step : {10, 20, 30, 40}) {
    REQUIRE(checkpoint.Save(State(step), model.Tensors()).ok());
  }
  CHECK(Names(alone.dir.path()) == std::set<std::string>{"checkpoint-000003-step-30.ckpt",
                                                         "checkpoint-000004-step-40.ckpt",
                                                         "notes.txt"});
}

TEST_CASE("checkpoint: the newest is the one saved last, not the one with the largest step") {
  Alone alone;
  alone.Save(500);
  alone.Save(10);  // a run that began anew
  Model model;
  CHECK((*alone.Open().LoadLatest(model.Tensors()))->step == 10);
}

// Two checkpoints, of which the newer can be damaged.
struct Damaged {
  Damaged() {
    alone.Save(1);
    alone.Save(2);
    path = alone.dir.File("checkpoint-000002-step-2.ckpt");
    good = ReadFile(path);
  }
  // What is said of the newer when it holds `bytes`. It is refused, and the older is loaded.
  std::string Refused(const std::string& bytes) {
    WriteFile(path, bytes);
    Model loaded = Blank();
    Checkpoint checkpoint = alone.Open();
    const auto state = checkpoint.LoadLatest(loaded.Tensors());
    REQUIRE_MESSAGE(state.ok(), state.status().message());
    REQUIRE((*state)->step == 1);
    REQUIRE(loaded == Model{});
    REQUIRE(checkpoint.refused().size() == 1);
    return checkpoint.refused()[0];
  }

  Alone alone;
  std::string path, good;
};

// Every byte of the file is covered: magic, length, header, data, checksum.
TEST_CASE("checkpoint: any flipped byte is refused, and the previous file is used and named") {
  Damaged newest;
  const std::string good = newest.good;
  REQUIRE(good.size() > 100);
  for (size_t i = 0; i < good.size(); ++i) {
    CAPTURE(i);
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const std::string refused = newest.Refused(bad);
    REQUIRE(refused.find("refused checkpoint \"" + newest.path + "\": ") == 0);
    if (i >= 8) REQUIRE(refused == Contains("checksum"));
  }
}

TEST_CASE("checkpoint: a file of an earlier version is an error, not damage") {
  Damaged newest;
  newest.good[7] = '1';
  WriteFile(newest.path, newest.good);
  Model model = Blank();
  Checkpoint reader = newest.alone.Open();
  const absl::Status status = reader.LoadLatest(model.Tensors()).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == Contains("an earlier version of this library wrote it"));
  CHECK(model == Blank());
}

TEST_CASE("checkpoint: a file truncated anywhere or with a tail is refused") {
  Damaged newest;
  const std::string good = newest.good;
  std::vector<std::string> bad = {good + "x", good + good};
  for (size_t i = 0; i < good.size(); ++i) bad.push_back(good.substr(0, i));
  for (const std::string& bytes : bad) {
    CAPTURE(bytes.size());
    newest.Refused(bytes);
  }
}

TEST_CASE("checkpoint: when all are damaged it is an error and nothing is touched") {
  Alone alone;
  alone.Save(1);
  alone.Save(2);
  for (const std::string& name : Names(alone.dir.path()))
    WriteFile(alone.dir.File(name), "garbage");
  Model loaded = Blank();
  const auto state = alone.Open().LoadLatest(loaded.Tensors());
  CHECK(state.status().code() == absl::StatusCode::kDataLoss);
  CHECK(state.status().message() == Contains("all 2 are damaged"));
  CHECK(loaded == Blank());
}

TEST_CASE("checkpoint: a good one goes on counting after a damaged one") {
  Alone alone;
  alone.Save(1);
  alone.Save(2);
  WriteFile(alone.dir.File("checkpoint-000002-step-2.ckpt"), "garbage");
  alone.Save(2);
  Model loaded = Blank();
  Checkpoint checkpoint = alone.Open();
  CHECK((*checkpoint.LoadLatest(loaded.Tensors()))->step == 2);
  CHECK(checkpoint.latest() == alone.dir.File("checkpoint-000003-step-2.ckpt"));
  CHECK(checkpoint.refused().empty());
}

TEST_CASE("checkpoint: one of another model is an error that names the difference") {
  Alone alone;
  alone.Save(1);
  Model model = Blank();
  const auto load = [&](const std::vector<Tensor>& tensors) {
    const auto state = alone.Open().LoadLatest(tensors);
    CHECK(state.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(model == Blank());
    return std::string(state.status().message());
  };
  std::vector<Tensor> renamed = model.Tensors(), smaller = renamed, typed = renamed,
                      fewer = renamed;
  renamed[1].name = "momentum";
  CHECK(load(renamed) ==
        Contains("it has 'velocity', 2 x float64 where the model has 'momentum', 2 x "
                 "float64"));
  smaller[0].count = 2;
  CHECK(load(smaller) ==
        Contains("'weights', 3 x float32 where the model has 'weights', 2 x float32"));
  typed[0].dtype = DType::kInt32;
  CHECK(load(typed) == Contains("the model has 'weights', 3 x int32"));
  fewer.pop_back();
  CHECK(load(fewer) == Contains("where the model has only 2 tensors"));
}

TEST_CASE("checkpoint: a directory that cannot be written is an error that names it") {
  Alone alone;
  WriteFile(alone.dir.File("file"), "x");
  Model model;
  Checkpoint below_file(alone.group.communicator(0), {.directory = alone.dir.File("file/sub")});
  const absl::Status status = below_file.Save(State(1), model.Tensors());
  CHECK_FALSE(status.ok());
  CHECK(status.message() == Contains(alone.dir.File("file/sub")));
}

TEST_CASE("checkpoint: a directory without write permission leaves what is there") {
  if (::geteuid() == 0) return SkipTest("root may write everywhere");
  Alone alone;
  alone.Save(1);
  ::chmod(alone.dir.path().c_str(), 0500);
  Model model;
  const absl::Status status = alone.Open().Save(State(2), model.Tensors());
  ::chmod(alone.dir.path().c_str(), 0700);
  CHECK(status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(status.message().find("save in \"" + alone.dir.path().string() + "\": ") == 0);
  CHECK(Names(alone.dir.path()) == std::set<std::string>{"checkpoint-000001-step-1.ckpt"});
}

// A limit on the size of files stands for a full disk: the same write fails half-way.
TEST_CASE("checkpoint: a full disk leaves the previous one and no half file") {
  Alone alone;
  alone.Save(1);
  Model large;
  large.weights.assign(1 << 16, 1.0f);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const rlimit limit{.rlim_cur = 1 << 16, .rlim_max = old_limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const absl::Status status = alone.Open().Save(State(2), large.Tensors());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, old_handler);

  CHECK(status.message() ==
        "write \"" + alone.dir.File("checkpoint-000002-step-2.ckpt") +
            "\": File too large; make room, keep fewer checkpoints or save in another directory; "
            "what was saved before is whole");
  CHECK(Names(alone.dir.path()) == std::set<std::string>{"checkpoint-000001-step-1.ckpt"});
}

TEST_CASE("checkpoint: what an earlier run left is set aside, whole, and not found any more") {
  Alone alone;
  CHECK(*alone.Open().SetEarlierAside() == std::nullopt);
  alone.Save(10);
  alone.Save(20);
  ddprun::testing::WriteFile(alone.dir.File("run.json"), "its record");
  Checkpoint checkpoint = alone.Open();
  const std::string first = alone.dir.path().string() + "/earlier-1";
  CHECK(*checkpoint.SetEarlierAside() == first);
  CHECK(ddprun::testing::ReadFile(first + "/run.json") == "its record");
  Model model;
  CHECK(*checkpoint.LoadLatest(model.Tensors()) == std::nullopt);
  CHECK(*checkpoint.SetEarlierAside() == std::nullopt);

  alone.Save(5);
  CHECK(Names(alone.dir.path()) ==
        std::set<std::string>{"earlier-1", "checkpoint-000001-step-5.ckpt"});
  CHECK(*alone.Open().SetEarlierAside() == alone.dir.path().string() + "/earlier-2");
  Checkpoint earlier(alone.group.communicator(0), {.directory = first});
  CHECK(earlier.LoadLatest(model.Tensors()).value()->step == 20);
}

TEST_CASE("checkpoint: a directory that cannot be written is found before anything is saved") {
  Alone alone;
  const std::string path = alone.dir.File("run/checkpoints");
  Checkpoint good(alone.group.communicator(0), {.directory = path});
  CHECK(good.CheckWritable().ok());
  CHECK(fs::is_directory(path));
  CHECK(Names(path).empty());
  WriteFile(alone.dir.File("file"), "in the way");
  Checkpoint bad(alone.group.communicator(0), {.directory = alone.dir.File("file")});
  CHECK(bad.CheckWritable().message() == Contains("\"" + alone.dir.File("file")));
  Checkpoint no_files(alone.group.communicator(0), {.directory = "/proc/self"});
  CHECK(no_files.CheckWritable().message().find("save in \"/proc/self\": ") == 0);
}

TEST_CASE("checkpoint: every rank loads what rank 0 has, whoever wrote it") {
  TempDir dir;
  const auto options = [&dir] { return CheckpointOptions{.directory = dir.path().string()}; };
  ThreadGroup writers(4);
  writers.Run([&](Communicator& communicator) {
    Model model;
    model.weights[0] = static_cast<float>(communicator.rank());
    Checkpoint checkpoint(communicator, options());
    CHECK(checkpoint.Save(State(5), model.Tensors()).ok());
    CHECK(checkpoint.latest().empty() == (communicator.rank() != 0));
  });
  CHECK(Names(dir.path()) == std::set<std::string>{"checkpoint-000001-step-5.ckpt"});

  for (const int world_size : {1, 2, 3, 8}) {
    ThreadGroup readers(world_size);
    std::mutex mutex;
    int loaded = 0;
    readers.Run([&](Communicator& communicator) {
      Model model = Blank();
      // Only rank 0 need reach the files.
      CheckpointOptions mine = options();
      if (communicator.rank() != 0) mine.directory = "/nonexistent";
      Checkpoint checkpoint(communicator, mine);
      const auto state = checkpoint.LoadLatest(model.Tensors());
      const std::lock_guard<std::mutex> lock(mutex);
      REQUIRE(state.ok());
      CHECK((*state)->step == 5);
      CHECK(model.weights[0] == 0.0f);
      CHECK(model.weights[1] == -2.25f);
      CHECK(checkpoint.latest() == dir.File("checkpoint-000001-step-5.ckpt"));
      ++loaded;
    });
    CHECK(loaded == world_size);
  }
}

TEST_CASE("checkpoint: every rank gets rank 0's error and its refusals") {
  TempDir dir;
  WriteFile(dir.File("checkpoint-000001-step-5.ckpt"), "garbage");
  ThreadGroup group(3);
  std::mutex mutex;
  std::vector<std::string> messages;
  group.Run([&](Communicator& communicator) {
    Model model;
    Checkpoint checkpoint(communicator, {.directory = dir.path().string()});
    const auto state = checkpoint.LoadLatest(model.Tensors());
    const std::lock_guard<std::mutex> lock(mutex);
    messages.emplace_back(state.status().message());
    CHECK(checkpoint.refused().size() == 1);
  });
  REQUIRE(messages.size() == 3);
  CHECK(messages[0].find("no usable checkpoint") == 0);
  CHECK(messages[1] == messages[0]);
  CHECK(messages[2] == messages[0]);
}

TEST_CASE("checkpoint: the hash of tensors is that of their bytes in order") {
  std::string abc = "abc";
  const Tensor a{"x", abc.data(), 1, DType::kUint8}, bc{"y", abc.data() + 1, 2, DType::kUint8};
  const std::vector<Tensor> in_order = {a, bc}, reversed = {bc, a};
  CHECK(ChecksumHex(in_order) == "06b05ab6733a618578af5f94892f3950");
  CHECK(ChecksumHex(reversed) != ChecksumHex(in_order));
}

TEST_CASE("checkpoint: a rank whose tensors have no memory fails all ranks at once") {
  const TempDir dir;
  ddprun::testing::RunRankThreads({.nodes = {2}}, [&dir](Communicator& communicator) {
    Checkpoint checkpoint(communicator, {.directory = dir.path().string()});
    Model model;
    std::vector<Tensor> tensors = model.Tensors();
    CHECK(checkpoint.Save(State(1), tensors).ok());
    if (communicator.rank() == 1) tensors[0].data = nullptr;
    const absl::Status status = checkpoint.LoadLatest(tensors).status();
    CAPTURE(status.ToString());
    CHECK(status.code() == (communicator.rank() == 1 ? absl::StatusCode::kInvalidArgument
                                                     : absl::StatusCode::kAborted));
    CHECK(status.message() ==
          Contains("broadcast (float32 x 3, root 0): the input is a null pointer"));
  });
}

}  // namespace
}  // namespace ddp
