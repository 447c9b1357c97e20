// Training on GPUs under the real ddprun, on the double of CUDA and NCCL (tests/gpu_double).
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

std::map<std::string, std::string> OnDouble(std::map<std::string, std::string> more = {}) {
  const std::string path =
      std::filesystem::absolute(Runfile("tests/gpu_double/libgpu_double.so")).string();
  more["DDPRUN_CUDA_LIB"] = more["DDPRUN_NCCL_LIB"] = path;
  more["CUDA_VISIBLE_DEVICES"] = "";  // unset
  return more;
}

std::vector<std::string> Worker(const std::string& ranks, std::vector<std::string> options,
                                const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"--standalone", "--nproc-per-node=" + ranks};
  all.insert(all.end(), options.begin(), options.end());
  all.push_back(Runfile("tests/e2e/gpu_worker"));
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

TEST_CASE("gpu: ranks under ddprun train alike, each on a GPU of its own") {
  // Every layer goes half of the way to the mean of the ranks' targets in each step.
  for (const auto& [ranks, learned] : {std::pair("2", "1.500"), std::pair("4", "2.500")}) {
    Job job;
    auto ddprun = job.RunRaw(Worker(ranks, {}, {"40"}), {.env = OnDouble()});
    REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    for (int rank = 0; rank < std::stoi(ranks); ++rank) {
      const std::string line = "rank " + std::to_string(rank) + " learned " + learned +
                               ", restarts 0, cuda, nccl 2.28.7: each of " + ranks +
                               " ranks has a GPU of its own\n";
      CHECK(ddprun->out() == Contains(line));
    }
  }
}

TEST_CASE("gpu: ranks that each see one GPU as number 0 train alike") {
  Job job;
  auto ddprun = job.RunRaw(Worker("2", {"--virtual-local-rank"}, {"40"}), {.env = OnDouble()});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  for (const std::string rank : {"0", "1"}) {
    const std::string line = "rank " + rank + " learned 1.500, restarts 0, cuda, nccl 2.28.7: " +
                             "each of 2 ranks has a GPU of its own\n";
    CHECK(ddprun->out() == Contains(line));
  }
}

TEST_CASE("gpu: a killed rank is replaced with the whole group") {
  Job job;
  auto ddprun =
      job.RunRaw(Worker("4", {"--max-restarts=1"}, {"40", "die", "5", "60"}), {.env = OnDouble()});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() == Contains("rank 3 learned 2.500, restarts 1"));
}

TEST_CASE("gpu: a rank that dies in a collective ends the job with its own code") {
  Job job;
  auto ddprun = job.RunRaw(Worker("4", {}, {"1000000", "die", "5", "60"}), {.env = OnDouble()});
  CHECK_MESSAGE(ddprun->Wait() == 128 + 9, ddprun->Describe());
  CHECK(ddprun->err() == Contains("rank      : 1"));
}

TEST_CASE("gpu: a rank that hangs in step 5 is named with the collective") {
  Job job;
  auto ddprun = job.RunRaw(Worker("2", {}, {"1000000", "stop", "5", "3"}),
                           {.env = OnDouble({{"DDPRUN_FLIGHT_RECORDER_DIR", job.File("")}})});
  CHECK_MESSAGE(ddprun->Wait() == 1, ddprun->Describe());
  const std::string err = ddprun->err();
  CHECK(err == Contains("(float32 x 20000, average) timed out after 3 s: rank 1 did not arrive"));
}

}  // namespace
}  // namespace ddprun::testing
