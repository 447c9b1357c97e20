#include "launcher/status/process_reader.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>

#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using testing::Eventually;

// A child that runs `body` and then sleeps; killed and reaped at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    DDP_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    while (true) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  int pid() const { return pid_; }

 private:
  const pid_t pid_;
};

std::optional<ProcessSample> ReadOne(int pid) { return ReadProcesses({pid})[0]; }

TEST_CASE("process reader: this process, as the kernel sees it") {
  const auto sample = ReadOne(getpid());
  REQUIRE(sample);
  CHECK(sample->pid == getpid());
  CHECK(sample->pids.front() == getpid());
  CHECK(sample->state == 'R');
  CHECK(sample->wait == "");
  CHECK(sample->threads >= 1);
  CHECK(sample->resident_bytes > 100'000);
  CHECK(sample->main_pid == getpid());
  CHECK(sample->core_wait_ns.has_value() == std::filesystem::exists("/proc/self/schedstat"));
}

TEST_CASE("process reader: one that waits says where") {
  const Child child([] {});
  std::optional<ProcessSample> sample;
  CHECK(Eventually([&] {
    sample = ReadOne(child.pid());
    return sample && sample->state == 'S' && !sample->wait.empty();
  }));
  MESSAGE("pause() waits in " << sample->wait);
}

TEST_CASE("process reader: what a worker has started counts, and the largest is told of") {
  constexpr size_t kBytes = 64 << 20;
  const Child shell([] {
    if (fork() != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    DDP_CHECK(memory != MAP_FAILED);
    while (getppid() != 1) continue;
  });
  std::optional<ProcessSample> sample;
  CHECK(Eventually([&] {
    sample = ReadOne(shell.pid());
    return sample && sample->pids.size() == 2 && sample->cpu_ticks >= 20 &&
           sample->resident_bytes > static_cast<int64_t>(kBytes);
  }));
  CHECK(sample->pids[0] == shell.pid());
  kill(sample->pids[1], SIGKILL);
}

TEST_CASE("process reader: a process that has ended gives nothing, its zombie neither") {
  int pid = 0;
  {
    const Child child([] { _exit(0); });
    pid = child.pid();
    CHECK(Eventually([&] { return !ReadOne(pid); }));
  }
  const auto samples = ReadProcesses({pid, 0, -1, getpid()});
  REQUIRE(samples.size() == 4);
  CHECK_FALSE(samples[0]);
  CHECK_FALSE(samples[1]);
  CHECK_FALSE(samples[2]);
  CHECK(samples[3]);
}

TEST_CASE("process reader: when the time is over the rest gives nothing") {
  const auto samples = ReadProcesses({getpid(), getpid()}, Duration(0));
  REQUIRE(samples.size() == 2);
  CHECK_FALSE(samples[0]);
  CHECK_FALSE(samples[1]);
}

TEST_CASE("process reader: a /proc without lists of children, addresses and calls") {
  const testing::TempDir proc;
  std::filesystem::create_directories(proc.File("7"));
  testing::WriteFile(proc.File("7/stat"),
                     "7 (a) S 1 7 7 0 -1 0 0 0 0 0 5 6 0 0 20 0 3 0 99 1000 25 0\n");
  const auto sample = ReadProcesses({7}, std::chrono::seconds(1), proc.path().string())[0];
  REQUIRE(sample);
  CHECK(sample->pids == std::vector<int>{7});
  CHECK(sample->cpu_ticks == 11);
  CHECK(sample->start_ticks == 99);
  CHECK(sample->resident_bytes == 25 * sysconf(_SC_PAGESIZE));
  CHECK(sample->wait == "");
}

TEST_CASE("process reader: the cost of 64 workers is told") {
  std::vector<std::unique_ptr<Child>> children;
  std::vector<int> pids;
  for (int i = 0; i < 64; ++i) {
    children.push_back(std::make_unique<Child>([] {}));
    pids.push_back(children.back()->pid());
  }
  timespec before{}, after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) {
    const auto samples = ReadProcesses(pids, std::chrono::seconds(10));
    CHECK(std::all_of(samples.begin(), samples.end(), [](const auto& s) { return s.has_value(); }));
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const double ms = (static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                     static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6) /
                    kTimes;
  MESSAGE("64 workers: " << ms << " ms of CPU time a sample, " << ms / 5000 * 100
                         << " % of a core every 5 s");
}

}  // namespace
}  // namespace ddprun::launcher
