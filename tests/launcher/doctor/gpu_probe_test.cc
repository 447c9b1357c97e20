#include "launcher/doctor/gpu_probe.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{1500};

// Whose time is never over.
GpuReport Run(const std::vector<std::string>& argv) {
  const testing::VirtualClock clock;
  return RunProbe(argv, kLimit, clock);
}
GpuReport RunShell(const std::string& script) { return Run({"/bin/sh", "-c", script}); }

// Whose time is over when it has made the file `sign`.
GpuReport RunLateShell(const std::string& script, const std::string& sign) {
  testing::VirtualClock clock;
  std::thread other([&] {
    CHECK(clock.AwaitWaitUntil(clock.Now() + kLimit));
    CHECK(testing::Eventually([&] { return std::filesystem::exists(sign); }));
    clock.Advance(kLimit);
  });
  const GpuReport report = RunProbe({"/bin/sh", "-c", script}, kLimit, clock);
  other.join();
  return report;
}

TEST_CASE("gpu probe: a probe that ends well is read to its end") {
  const GpuReport report = RunShell("echo stage=x; echo driver_file=/lib/c; echo end=");
  CHECK(report.is_complete);
  CHECK(report.interrupted == "");
  CHECK(report.driver_file == "/lib/c");
}

TEST_CASE("gpu probe: a probe that does not answer is killed at the deadline and its stage named") {
  const testing::TempDir dir;
  const GpuReport report =
      RunLateShell("echo $$ > " + dir.File("pid") + "; echo 'stage=the NVIDIA driver (cuInit)'; " +
                       "touch " + dir.File("sign") + "; exec sleep 600",
                   dir.File("sign"));
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
  CHECK(Run({"/no/such/program"}).interrupted == "the GPU probe ended early: exit code 127");
  CHECK(Run({"/bin/cat", "/dev/zero"}).interrupted.find("the GPU probe") == 0);
}

TEST_CASE("gpu probe: one that closes its pipe and lives on is ended") {
  const testing::TempDir dir;
  const std::string sign = dir.File("sign");
  const GpuReport report = RunLateShell("exec >&-; touch " + sign + "; exec sleep 600", sign);
  CHECK(report.interrupted == Contains("killed by signal 9"));
}

TEST_CASE("gpu probe: an ignored SIGCHLD, as some parents leave it, changes nothing") {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const GpuReport report = RunShell("echo driver_file=/lib/c; echo end=");
  const GpuReport early = RunShell("exit 3");
  const testing::TempDir dir;
  const std::string sign = dir.File("sign");
  const GpuReport late = RunLateShell("touch " + sign + "; exec sleep 600", sign);
  std::signal(SIGCHLD, before);
  CHECK(report.is_complete);
  CHECK(early.interrupted == "the GPU probe ended early");
  CHECK(late.interrupted == "the GPU probe did not answer in 1.5 s");
}

TEST_CASE("gpu probe: the probe has nothing of ours to write to but its pipe") {
  const GpuReport report = RunShell("echo driver_file=$(readlink /proc/$$/fd/2); echo end=");
  CHECK(report.driver_file == "/dev/null");
}

}  // namespace
}  // namespace ddprun::launcher
