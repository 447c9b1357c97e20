// The disk that keeps the coordinator's file of the job fails.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>

#include "tests/faults/apart.h"
#include "tests/faults/bench.h"

namespace ddprun::testing {
namespace {

std::string FailToSync(Bench& bench, const std::string& error, const std::string& text) {
  Job& job = bench.job();
  Apart apart(bench, {{"LD_PRELOAD", Runfile("tests/faults/libfault_shim.so")},
                      {"DDPRUN_TEST_FSYNC", error},
                      {"DDPRUN_TEST_FIRED", job.File("fired")}});
  if (!apart.StartNodes({})) return "no round forms:" + apart.coordinator().Describe();
  if (!bench.Eventually([&] { return job.HasFile("fired"); })) return "the fault did not fire";
  const std::string broken = apart.Finish();
  if (!broken.empty()) return broken;
  // Once, however many records there are.
  const std::string err = apart.coordinator().err();
  const std::string told = std::string("/job.new\": ") + text +
                           "; a coordinator that is started again in its place knows of this job "
                           "only what its nodes still know";
  if (CountIn(err, "warning: job file: sync \"") == 1 && CountIn(err, told) == 1) return "";
  return "nobody is told:" + apart.coordinator().Describe();
}

TEST_CASE("F34: a coordinator whose file cannot be made durable says so, and the job goes on") {
  CheckHolds([](Bench& bench) { return FailToSync(bench, "EIO", "Input/output error"); });
  CheckHolds([](Bench& bench) { return FailToSync(bench, "ENOSPC", "No space left on device"); });
}

}  // namespace
}  // namespace ddprun::testing
