// The time of day is wrong, differently on each machine, and jumps by hours or years.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/base/check.h"
#include "tests/faults/apart.h"
#include "tests/faults/bench.h"

namespace ddprun::testing {
namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kYears = 20 * 365 * 24 * kHour;

// How wrong the clock of one machine is.
class WrongClock {
 public:
  WrongClock(const Job& job, const std::string& name, int64_t by)
      : path_(job.File(name)), fired_(job.File(name + ".fired")) {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    DDP_CHECK(file >= 0 && ftruncate(file, sizeof(int64_t)) == 0);
    void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    DDP_CHECK(page != MAP_FAILED);
    close(file);
    by_ = static_cast<std::atomic<int64_t>*>(page);
    Jump(by);
  }
  ~WrongClock() { munmap(by_, sizeof(int64_t)); }
  WrongClock(const WrongClock&) = delete;
  WrongClock& operator=(const WrongClock&) = delete;

  void Jump(int64_t by) { by_->store(by); }
  std::map<std::string, std::string> env() const {
    return {{"LD_PRELOAD", Runfile("tests/faults/libfault_shim.so")},
            {"DDPRUN_TEST_CLOCK", path_},
            {"DDPRUN_TEST_FIRED", fired_}};
  }
  bool HasFired() const { return access(fired_.c_str(), F_OK) == 0; }

 private:
  const std::string path_;
  const std::string fired_;
  std::atomic<int64_t>* by_ = nullptr;
};

// "03:00:00" of the first line of the log that has `text`; the hour alone.
std::string HourOf(const Subprocess& process, const std::string& text) {
  const std::string err = process.err();
  const size_t at = err.find(text);
  const size_t line = at == std::string::npos ? at : err.rfind("info: ", at);
  return line == std::string::npos ? "" : err.substr(line + 6, 2);
}

std::string JumpClocks(Bench& bench, int64_t by) {
  Job& job = bench.job();
  WrongClock coordinators(job, "coordinator", by);
  WrongClock seconds(job, "second", -by);
  Apart apart(bench, coordinators.env());
  if (!apart.StartNodes(
          {"--max_restarts=2", "--rdzv_conf=keep_alive_interval=1,keep_alive_max_attempt=2"}, {},
          seconds.env())) {
    return "no round forms:" + apart.coordinator().Describe();
  }
  const std::vector<int> pids = apart.Pids();
  coordinators.Jump(-by);
  seconds.Jump(by);
  // For longer than the evict time.
  if (Eventually([&] { return apart.Pids() != pids; }, std::chrono::seconds(4))) {
    return "workers are stopped because clocks jump:" + apart.node(0).Describe();
  }
  kill(pids[1], SIGKILL);
  if (!apart.AwaitWorkers(1)) return "no restart:" + apart.node(1).Describe();
  // The two agents' own words date the same moment an hour apart, be it of another year.
  const std::string first = HourOf(apart.node(0), "draining"),
                    second = HourOf(apart.node(1), "draining");
  if (!coordinators.HasFired() || !seconds.HasFired() || first == second) {
    return "the fault did not fire:" + apart.node(1).Describe();
  }
  // The next coordinator begins twice as long before the one that it follows.
  apart.coordinator().Signal(SIGKILL);
  apart.coordinator().Wait();
  if (!apart.StartCoordinator(coordinators.env())) return apart.coordinator().Describe();
  if (!apart.HaveBothSaid("coordinator back")) return "nobody is back:" + apart.node(0).Describe();
  kill(apart.Pids()[0], SIGKILL);
  if (!apart.AwaitWorkers(2)) return "no second restart:" + apart.node(0).Describe();
  return apart.Finish();
}

TEST_CASE("F35: clocks that differ by hours and jump change nothing") {
  CheckHolds([](Bench& bench) { return JumpClocks(bench, kHour); });
}

TEST_CASE("F35, B39: clocks that differ by decades and jump change nothing") {
  CheckHolds([](Bench& bench) { return JumpClocks(bench, kYears + kHour); });
}

}  // namespace
}  // namespace ddprun::testing
