// `ddprun bench dp-ddp --device cuda`, on the double of CUDA and NCCL (tests/gpu_double).
#include <algorithm>
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

constexpr std::chrono::minutes kLong{9};

std::map<std::string, std::string> OnDouble(std::map<std::string, std::string> more = {}) {
  const std::string path =
      std::filesystem::absolute(Runfile("tests/gpu_double/libgpu_double.so")).string();
  more.insert({{"DDPRUN_CUDA_LIB", path}, {"DDPRUN_NCCL_LIB", path}});
  more["CUDA_VISIBLE_DEVICES"] = "";  // unset
  return more;
}

// Events are told apart by about this much: in milliseconds a float has 60 ns at one second.
constexpr double kClockMs = 1e-3;

// One after the other, as they are on the one stream, and within the step.
void CheckReductions(const Json& timeline) {
  const bool are_there =
      timeline.get<std::string>("way") == "ddp" && timeline.get<int>("ranks") > 1;
  CHECK(timeline.get_child("reductions").empty() == !are_there);
  double free_ms = 0;
  for (const auto& [key, reduction] : timeline.get_child("reductions")) {
    const double begin_ms = reduction.get<double>("begin_ms");
    const double end_ms = reduction.get<double>("end_ms");
    CAPTURE(reduction.get<std::string>("name"));
    CHECK(free_ms <= begin_ms + kClockMs);
    CHECK(begin_ms <= end_ms + kClockMs);
    free_ms = end_ms;
  }
  CHECK(free_ms <= timeline.get<double>("step_ms") + kClockMs);
}

TEST_CASE("bench: both ways train on GPUs as on the CPU, and their numbers mean the same") {
  Job job;
  const std::vector<std::string> common = {"bench", "dp-ddp", "--seconds=0.1", "--output"};
  auto on_cpu = common, on_gpus = common;
  on_cpu.insert(on_cpu.end(), {job.File("cpu.json"), "--world-sizes=1"});
  on_gpus.insert(on_gpus.end(), {job.File("cuda.json"), "--world-sizes=1,2", "--device=cuda"});
  auto cpu = job.RunRaw(on_cpu);
  REQUIRE_MESSAGE(cpu->Wait(kLong) == 0, cpu->Describe());
  // As many as the largest number of ranks.
  auto cuda = job.RunRaw(on_gpus, {.env = OnDouble({{"DDPRUN_DOUBLE_GPUS", "2"}})});
  REQUIRE_MESSAGE(cuda->Wait(kLong) == 0, cuda->Describe());
  CHECK(job.IsGone());
  CHECK(cuda->err() == Contains("ddprun: bench: this machine: 2 GPUs, "));
  CHECK(cuda->out() == Contains("\nbucket_cap_mb: "));

  const auto json = ParseJson(ReadFile(job.File("cuda.json")));
  const auto cpu_json = ParseJson(ReadFile(job.File("cpu.json")));
  REQUIRE(json.has_value());
  REQUIRE(cpu_json.has_value());
  CHECK(json->get<std::string>("machine.device") == "cuda");
  CHECK(json->get<int>("machine.gpus") == 2);
  CHECK(json->get<bool>("losses_equal"));
  const double loss = ElementOf(*cpu_json, "rows", 0).get<double>("final_loss");
  REQUIRE(json->get_child("rows").size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const Json row = ElementOf(*json, "rows", i);
    const int ranks = i % 2 == 0 ? 1 : 2;
    CAPTURE(i);
    CHECK(row.get<std::string>("way") == (i < 2 ? "dp" : "ddp"));
    CHECK(row.get<int>("ranks") == ranks);
    CHECK(row.get<double>("final_loss") == doctest::Approx(loss).epsilon(1e-4));
    CHECK(row.get<double>("step_ms") > 0);
    CHECK(row.get_child("memory_bytes").size() == static_cast<size_t>(ranks));
    // Weights, gradients and momentum of 1 million parameters at least, where all are.
    CHECK(ElementOf(row, "memory_bytes", 0).get_value<int64_t>() > 12'000'000);
    CHECK((row.get<int64_t>("bytes_moved") > 0) == (ranks > 1));
    CHECK((row.get<double>("communication_ms") > 0) == (ranks > 1));
    CheckReductions(ElementOf(*json, "timelines", i));
  }
}

// The last line on stderr of a bench that measured nothing.
std::string RefusalOf(std::vector<std::string> options, std::map<std::string, std::string> env) {
  Job job;
  options.insert(options.begin(), {"bench", "dp-ddp", "--device=cuda"});
  auto bench = job.RunRaw(options, {.env = std::move(env)});
  CHECK_MESSAGE(bench->Wait() == 120, bench->Describe());
  CHECK(bench->out().empty());
  const std::string err = bench->err();
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
  return err;
}

TEST_CASE("bench: without a driver, and with fewer GPUs than ranks, it says so and ends") {
  const std::string no_driver =
      RefusalOf({}, OnDouble({{"DDPRUN_CUDA_LIB", "/nowhere/libcuda.so.1"}}));
  CHECK(no_driver ==
        Contains("ddprun: error: bench: --device cuda: CUDA driver: DDPRUN_CUDA_LIB: /nowhere/"));
  CHECK(no_driver == Contains("; --device cpu measures without\n"));
  CHECK(RefusalOf({}, OnDouble({{"DDPRUN_DOUBLE_GPUS", "0"}})) ==
        Contains("bench: --device cuda: "));
  CHECK(RefusalOf({"--world-sizes=2,4"}, OnDouble({{"DDPRUN_DOUBLE_GPUS", "2"}})) ==
        "ddprun: error: bench: --device cuda: 4 ranks need a GPU each, and CUDA shows 2; ask for "
        "fewer by --world-sizes\n");
}

}  // namespace
}  // namespace ddprun::testing
