#include "worker_runtime/data_parallel/device_thread.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/in_child.h"

namespace ddp::internal {
namespace {

std::unique_ptr<DeviceThread> Started(int index, int shares) {
  absl::StatusOr<std::unique_ptr<DeviceThread>> thread = DeviceThread::Start(index, shares);
  REQUIRE_MESSAGE(thread.ok(), std::string(thread.status().message()));
  return *std::move(thread);
}

cpu_set_t AllowedCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  CHECK(::sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  return allowed;
}

// The CPUs that a thread may use.
cpu_set_t CpusOf(DeviceThread& thread) {
  cpu_set_t cpus;
  thread.Begin([&cpus] {
    cpus = AllowedCpus();
    return absl::OkStatus();
  });
  CHECK(thread.Wait().ok());
  return cpus;
}

TEST_CASE("device thread: tasks run one after the other on one thread that is not the caller's") {
  const std::unique_ptr<DeviceThread> thread = Started(0, 1);
  std::vector<pid_t> ran;
  for (int i = 0; i < 100; ++i) {
    thread->Begin([&ran] {
      ran.push_back(::gettid());
      return absl::OkStatus();
    });
    REQUIRE(thread->Wait().ok());
    REQUIRE(ran.size() == static_cast<size_t>(i) + 1);  // Wait() has waited
  }
  CHECK(ran == std::vector<pid_t>(100, ran[0]));
  CHECK(ran[0] != ::gettid());
}

TEST_CASE("device thread: the result is the task's own, each time") {
  const std::unique_ptr<DeviceThread> thread = Started(0, 1);
  CHECK(thread->Wait().ok());  // nothing was begun
  thread->Begin([] { return absl::DataLossError("on purpose"); });
  CHECK(thread->Wait() == absl::DataLossError("on purpose"));
  thread->Begin([] { return absl::OkStatus(); });
  CHECK(thread->Wait().ok());
}

TEST_CASE("device thread: several have shares of the CPUs that are all of them together") {
  const cpu_set_t allowed = AllowedCpus();
  for (const int shares : {1, CPU_COUNT(&allowed)}) {
    cpu_set_t all;
    CPU_ZERO(&all);
    int count = 0;
    for (int index = 0; index < shares; ++index) {
      cpu_set_t share = CpusOf(*Started(index, shares));
      count += CPU_COUNT(&share);
      CPU_OR(&all, &all, &share);
    }
    CHECK(CPU_EQUAL(&all, &allowed));
    CHECK(count == CPU_COUNT(&allowed));  // none twice
  }
}

TEST_CASE("device thread: with more shares than CPUs each may use all of them") {
  const cpu_set_t allowed = AllowedCpus();
  const int shares = CPU_COUNT(&allowed) + 1;
  const cpu_set_t last = CpusOf(*Started(shares - 1, shares));
  CHECK(CPU_EQUAL(&last, &allowed));
}

TEST_CASE("device thread: signals of the process are not taken by it") {
  const std::unique_ptr<DeviceThread> thread = Started(0, 1);
  sigset_t blocked;
  thread->Begin([&blocked] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return absl::OkStatus();
  });
  REQUIRE(thread->Wait().ok());
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) CHECK(::sigismember(&blocked, signal) == 1);
}

TEST_CASE("device thread: where no thread is to be had, the error says which") {
  const std::string words = ddprun::testing::InChild({}, [] {
    // The limit is not for root.
    const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return std::string("still root");
    ::setrlimit(RLIMIT_NPROC, &none);
    return DeviceThread::Start(2, 4).status().ToString();
  });
  CHECK(words ==
        "RESOURCE_EXHAUSTED: start the thread of device 2 of 4: a limit on processes is reached "
        "(ulimit -u, pids.max)");
}

}  // namespace
}  // namespace ddp::internal
