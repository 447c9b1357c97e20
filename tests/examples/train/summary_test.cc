#include "examples/train/summary.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace train {
namespace {

Summary Example() {
  return {.world_size = 4,
          .backend = "shm",
          .epochs = {{1, 0.5, 0.25}, {2, 0.125, 1}},
          .steps = 80,
          .start_step = 40,
          .restart_count = 1,
          .samples_per_second = 1234.5,
          .step_ms = 2.5,
          .exposed_communication_share = 0.0625,
          .cpu_utilisation = 0.75,
          .slow_ranks = {1, 3},
          .checkpoint = "a \"b\"\\\n/c.ckpt",
          .parameters_checksum = "00ff",
          .record = {}};
}

TEST_CASE("summary: is JSON with every field") {
  const std::string json = ToJson(Example());
  const std::string record = ddp::ToJson(Example().record) + "}\n";
  REQUIRE(json.size() > record.size());
  CHECK(json.substr(json.size() - record.size()) == record);
  CHECK(json.substr(0, json.size() - record.size()) == R"({
  "world_size": 4,
  "backend": "shm",
  "epochs": [
    {"epoch": 1, "loss": 0.5, "accuracy": 0.25},
    {"epoch": 2, "loss": 0.125, "accuracy": 1}],
  "steps": 80,
  "start_step": 40,
  "restart_count": 1,
  "samples_per_second": 1234.5,
  "step_ms": 2.5,
  "exposed_communication_share": 0.0625,
  "cpu_utilisation": 0.75,
  "gpu_utilisation": null,
  "slow_ranks": [1, 3],
  "checkpoint": "a \"b\"\\\u000a/c.ckpt",
  "parameters_checksum": "00ff",
  "record": )");
  Summary on_gpu = Example();
  on_gpu.gpu_utilisation = 0.5;
  CHECK(ToJson(on_gpu) == Contains("\n  \"gpu_utilisation\": 0.5,\n"));
}

TEST_CASE("summary: the file is whole or not there") {
  ddprun::testing::TempDir dir;
  CHECK(WriteSummary(Example(), dir.File("s.json")).ok());
  CHECK(ddprun::testing::ReadFile(dir.File("s.json")) == ToJson(Example()));
  CHECK_FALSE(std::filesystem::exists(dir.File("s.json.tmp")));
  const absl::Status status = WriteSummary(Example(), dir.File("no/such/s.json"));
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(status.message() == Contains(dir.File("no/such/s.json")));
}

TEST_CASE("summary: a device or a pipe is written to and not replaced") {
  ddprun::testing::TempDir dir;
  const std::string link = dir.File("link");
  std::filesystem::create_symlink("/dev/null", link);
  CHECK(CheckSummaryFile(link).ok());
  CHECK(WriteSummary(Example(), link).ok());
  CHECK(std::filesystem::is_symlink(link));
}

TEST_CASE("summary: what cannot be written is found beforehand, and nothing is left") {
  ddprun::testing::TempDir dir;
  CHECK(CheckSummaryFile(dir.File("s.json")).ok());
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK_FALSE(CheckSummaryFile(dir.path().string()).ok());
  CHECK_FALSE(CheckSummaryFile(dir.File("no/such/s.json")).ok());
}

TEST_CASE("summary: epochs survive a checkpoint bit for bit") {
  const std::vector<EpochResult> epochs = {{1, 0.1, 1.0 / 3}, {2, 1e-300, 0.9715}};
  const std::vector<EpochResult> back = DecodeEpochs(EncodeEpochs(epochs));
  REQUIRE(back.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(back[i].epoch == epochs[i].epoch);
    CHECK(back[i].loss == epochs[i].loss);
    CHECK(back[i].accuracy == epochs[i].accuracy);
  }
  CHECK(DecodeEpochs("").empty());
}

}  // namespace
}  // namespace train
