// The example trainer under the real ddprun: resume after a kill, and equal bits however the ranks
// are spread.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// Instrumented code trains many times slower.
constexpr std::chrono::seconds kTraining{300};

// The text behind "name": in a summary, up to the next comma, brace or line end.
std::string Field(const std::string& json, const std::string& name) {
  const size_t key = json.find("\"" + name + "\"");
  if (key == std::string::npos) return "";
  const size_t from = json.find_first_not_of(" :\"", key + name.size() + 2);
  return json.substr(from, json.find_first_of(",}\"\n", from) - from);
}

// One training setting; every run of it must end with the same weights.
class Training {
 public:
  Training() {
    Subprocess draw(
        {Runfile("tools/make_digits/make_digits"), Data(), "--train", "2000", "--test", "200"});
    REQUIRE_MESSAGE(draw.Wait() == 0, draw.Describe());
  }

  // The arguments of one run named `name`, which keeps its checkpoints and summary apart.
  std::vector<std::string> Arguments(const std::string& name) const {
    return {Runfile("examples/train/train"),
            "--data",
            Data(),
            "--epochs",
            "20",
            "--batch_size",
            "10",
            "--hidden",
            "128",
            "--checkpoint_dir",
            dir_.File(name),
            "--checkpoint_every",
            "10",
            "--resume",
            "--summary_file",
            dir_.File(name + ".json")};
  }
  std::string Summary(const std::string& name) const { return ReadFile(dir_.File(name + ".json")); }
  std::string Weights(const std::string& name) const {
    return Field(Summary(name), "parameters_checksum");
  }
  // A whole one: its name ends in .ckpt, a half-written one's does not.
  bool WaitForCheckpoint(const std::string& name) const {
    return Eventually([&] {
      std::error_code none;
      const std::filesystem::directory_iterator files(dir_.File(name), none);
      return std::any_of(begin(files), end(files),
                         [](const auto& file) { return file.path().extension() == ".ckpt"; });
    });
  }

 private:
  std::string Data() const { return dir_.File("digits"); }

  TempDir dir_;
};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The weights of an undisturbed run of 1 x 4 ranks over shm.
std::string Reference(const Training& training) {
  Job job;
  auto ddprun = job.RunRaw(std::vector<std::string>{"--standalone", "--nproc-per-node=4"} +
                           training.Arguments("reference"));
  REQUIRE_MESSAGE(ddprun->Wait(kTraining) == 0, ddprun->Describe());
  const std::string summary = training.Summary("reference");
  REQUIRE_MESSAGE(Field(summary, "backend") == "shm", summary);
  REQUIRE_MESSAGE(Field(summary, "world_size") == "4", summary);
  REQUIRE_MESSAGE(Field(summary, "start_step") == "0", summary);
  REQUIRE_MESSAGE(Field(summary, "restart_count") == "0", summary);
  return Field(summary, "parameters_checksum");
}

TEST_CASE("train: a killed worker costs no bit of the result") {
  const Training training;
  const std::string reference = Reference(training);
  REQUIRE(reference.size() == 32);

  SUBCASE("on one node over shm") {
    Job job;
    auto ddprun = job.RunRaw(
        std::vector<std::string>{"--standalone", "--nproc-per-node=4", "--max-restarts=1"} +
        training.Arguments("killed"));
    REQUIRE_MESSAGE(training.WaitForCheckpoint("killed"), ddprun->Describe());
    REQUIRE(kill(job.PidOfRank(2), SIGKILL) == 0);
    REQUIRE_MESSAGE(ddprun->Wait(kTraining) == 0, ddprun->Describe());
    const std::string summary = training.Summary("killed");
    CHECK_MESSAGE(Field(summary, "restart_count") == "1", summary);
    CHECK_MESSAGE(Field(summary, "start_step") != "0", summary);
    CHECK(training.Weights("killed") == reference);
  }
  SUBCASE("on 2 x 2 ranks over tcp, in hosts of their own") {
    std::string why;
    const auto hosts = Hosts::Make(2, &why);
    if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
    Job job;
    const std::vector<std::string> options = {"--nnodes=2",
                                              "--nproc-per-node=2",
                                              "--rdzv-id=" + job.id(),
                                              "--rdzv-backend=c10d",
                                              "--max-restarts=1",
                                              "--rdzv-endpoint=" + hosts->Address(1) + ":29400"};
    auto a = job.RunRaw(options + training.Arguments("two"), {.netns = hosts->Name(1)});
    auto b = job.RunRaw(options + training.Arguments("two"), {.netns = hosts->Name(2)});
    REQUIRE_MESSAGE(training.WaitForCheckpoint("two"), a->Describe(), b->Describe());
    REQUIRE(kill(job.PidOfRank(3), SIGKILL) == 0);
    REQUIRE_MESSAGE(a->Wait(kTraining) == 0, a->Describe(), b->Describe());
    REQUIRE_MESSAGE(b->Wait(kTraining) == 0, b->Describe());
    const std::string summary = training.Summary("two");
    CHECK_MESSAGE(Field(summary, "backend") == "tcp", summary);
    CHECK_MESSAGE(Field(summary, "restart_count") == "1", summary);
    CHECK_MESSAGE(Field(summary, "start_step") != "0", summary);
    CHECK(training.Weights("two") == reference);
  }
  SUBCASE("on 4 x 1 ranks over tcp, in hosts of their own that have a token, nobody killed") {
    std::string why;
    const auto hosts = Hosts::Make(4, &why);
    if (hosts == nullptr) return SkipTest("no network namespaces here: " + why);
    Job job;
    const std::vector<std::string> options = {"--nnodes=4", "--nproc-per-node=1",
                                              "--rdzv-id=" + job.id(),
                                              "--rdzv-endpoint=" + hosts->Address(1) + ":29400"};
    std::vector<std::unique_ptr<Subprocess>> nodes;
    for (int i = 4; i >= 1; --i) {
      nodes.push_back(
          job.RunRaw(options + training.Arguments("four"),
                     {.env = {{"DDPRUN_TOKEN", std::string(64, '7')}}, .netns = hosts->Name(i)}));
    }
    for (const auto& node : nodes) REQUIRE_MESSAGE(node->Wait(kTraining) == 0, node->Describe());
    CHECK(training.Weights("four") == reference);
  }
}

TEST_CASE("train: without a checkpoint a restart begins afresh") {
  const Training training;
  Job job;
  // Rank 1 does not come in the first attempt, so that there is no checkpoint at the kill, however
  // late that is.
  auto ddprun =
      job.RunRaw(std::vector<std::string>{
                     "--standalone", "--nproc-per-node=2", "--max-restarts=1", "/bin/sh", "-c",
                     "test $RANK$TORCHELASTIC_RESTART_COUNT = 10 && exec \"$0\" wait; exec \"$@\"",
                     Runfile("tests/e2e/toy_worker")} +
                 training.Arguments("fresh"));
  REQUIRE(Eventually([&] { return job.PidOfRank(1) != 0; }));
  REQUIRE(kill(job.PidOfRank(1), SIGKILL) == 0);
  REQUIRE_MESSAGE(ddprun->Wait(kTraining) == 0, ddprun->Describe());
  const std::string summary = training.Summary("fresh");
  CHECK_MESSAGE(Field(summary, "restart_count") == "1", summary);
  CHECK_MESSAGE(Field(summary, "start_step") == "0", summary);
}

}  // namespace
}  // namespace ddprun::testing
