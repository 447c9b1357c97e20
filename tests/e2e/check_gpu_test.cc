// `ddprun check` on the double of CUDA and NCCL (tests/gpu_double).
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

TEST_CASE("check: ranks with a GPU each compute there and all-reduce by NCCL") {
  const std::string path =
      std::filesystem::absolute(Runfile("tests/gpu_double/libgpu_double.so")).string();
  Job job;
  auto check = job.RunRaw(
      {"check", "--nproc-per-node=2", "--tolerance=40"},
      {.env = {
           {"DDPRUN_CUDA_LIB", path}, {"DDPRUN_NCCL_LIB", path}, {"CUDA_VISIBLE_DEVICES", ""}}});
  REQUIRE_MESSAGE(check->Wait() == 0, check->Describe());
  CHECK(job.IsGone());
  CHECK(check->out() == Contains("ok     GPU 0  "));
  CHECK(check->out() == Contains("ok     GPU 1  "));
  CHECK(check->out() == Contains("\ncheck: 2 ranks: all are well\n"));
}

}  // namespace
}  // namespace ddprun::testing
