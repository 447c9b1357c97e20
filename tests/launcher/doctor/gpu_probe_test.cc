#include "launcher/doctor/gpu_probe.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include <doctest/doctest.h>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLong{60000};

GpuReport RunShell(const std::string& script, milliseconds deadline = kLong) {
  return RunProbe({"/bin/sh", "-c", script}, deadline);
}

TEST_CASE("gpu probe: a probe that ends well is read to its end") {
  const GpuReport report = RunShell("echo stage=x; echo driver_file=/lib/c; echo end=");
  CHECK(report.is_complete);
  CHECK(report.interrupted == "");
  CHECK(report.driver_file == "/lib/c");
}

TEST_CASE("gpu probe: a probe that does not answer is killed at the deadline and its stage named") {
  const testing::TempDir dir;
  const auto began = steady_clock::now();
  const GpuReport report = RunShell(
      "echo $$ > " + dir.File("pid") + "; echo 'stage=the NVIDIA driver (cuInit)'; exec sleep 600",
      milliseconds(1500));
  CHECK(steady_clock::now() - began < std::chrono::seconds(30));
  CHECK(report.interrupted == "the NVIDIA driver (cuInit) did not answer in 1.5 s");
  CHECK_FALSE(report.is_complete);
  CHECK(kill(std::stoi(testing::ReadFile(dir.File("pid"))), 0) == -1);  // reaped
}

TEST_CASE("gpu probe: what was said before a crash is kept") {
  const GpuReport report =
      RunShell("echo nccl_version=2.28.7; echo 'stage=the driver (cuInit)'; kill -SEGV $$");
  CHECK(report.nccl_version == "2.28.7");
  CHECK(report.interrupted.find("the driver (cuInit) ended the process that asked it: killed by "
                                "signal 11 (SIGSEGV)") == 0);
}

TEST_CASE("gpu probe: a program that is no probe, or is not there, is an answer too") {
  CHECK(RunShell("exit 3").interrupted == "the GPU probe ended early: exit code 3");
  CHECK(RunProbe({"/no/such/program"}, kLong).interrupted ==
        "the GPU probe ended early: exit code 127");
  CHECK(RunProbe({"/bin/cat", "/dev/zero"}, kLong).interrupted.find("the GPU probe") == 0);
}

TEST_CASE("gpu probe: one that closes its pipe and lives on is ended") {
  CHECK(RunShell("exec sleep 600 >&-", std::chrono::seconds(5))
            .interrupted.find("killed by signal 9") != std::string::npos);
}

TEST_CASE("gpu probe: an ignored SIGCHLD, as some parents leave it, changes nothing") {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const GpuReport report = RunShell("echo driver_file=/lib/c; echo end=");
  const GpuReport early = RunShell("exit 3");
  const GpuReport late = RunShell("exec sleep 600", milliseconds(300));
  std::signal(SIGCHLD, before);
  CHECK(report.is_complete);
  CHECK(early.interrupted == "the GPU probe ended early");
  CHECK(late.interrupted == "the GPU probe did not answer in 0.3 s");
}

TEST_CASE("gpu probe: the probe has nothing of ours to write to but its pipe") {
  const GpuReport report = RunShell("echo driver_file=$(readlink /proc/$$/fd/2); echo end=");
  CHECK(report.driver_file == "/dev/null");
}

}  // namespace
}  // namespace ddprun::launcher
