#include "launcher/process/survivors.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;

// Of which there are none in /proc.
constexpr pid_t kNobody = 1 << 30;

// A process that waits for the kernel alone: for its child, which it has begun as vfork does.
class Waiting {
 public:
  Waiting() : pid_(fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) Wait();
    CHECK(testing::Eventually([this] {
      std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
      const std::string text(std::istreambuf_iterator<char>(stat), {});
      return text.find(") D ") != std::string::npos;
    }));
  }
  ~Waiting() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void Wait() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static std::array<char, 65536> stack;
    const auto live = [](void*) -> int {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    };
    clone(live, stack.data() + stack.size(), CLONE_VFORK | SIGCHLD, nullptr);
    _exit(0);
  }

  const pid_t pid_;
};

TEST_CASE("survivors: who waits for the kernel is looked for among so many threads of all") {
  const Waiting waiting;
  const SurvivorWatch watch(60s);
  std::vector<Survivor> few(3, {.rank = 0, .pid = getpid()});
  few.push_back({.rank = 7, .pid = waiting.pid()});
  const std::string found = watch.GivenUpText(few);
  CHECK(found == Contains("the kernel holds rank 7 (i"));
  std::vector<Survivor> many(5000, {.rank = 0, .pid = getpid()});
  many.push_back(few.back());
  const std::string left = watch.GivenUpText(many);
  CHECK_MESSAGE(left.ends_with("the kernel holds them or another user owns them"), left);
}

TEST_CASE("survivors: they are told of once after five seconds and given up after a minute") {
  SurvivorWatch watch(60s);
  const TimePoint killed{100s};
  CHECK(watch.next_at() == TimePoint::max());

  CHECK_FALSE(watch.IsGivenUp(killed, true));
  CHECK(watch.TakeNotice(killed + 4s, {}) == "");
  CHECK(watch.next_at() == killed + 5s);
  CHECK_FALSE(watch.IsGivenUp(killed + 5s, true));
  CHECK(watch.TakeNotice(killed + 5s, {{.rank = 3, .pid = kNobody}}) ==
        "rank 3 (pid 1073741824) lives on 5 s after SIGKILL: the kernel holds it or another user "
        "owns it; given up after 60 s");
  CHECK(watch.TakeNotice(killed + 6s, {{.rank = 3, .pid = kNobody}}) == "");

  CHECK(watch.next_at() == killed + 60s);
  CHECK_FALSE(watch.IsGivenUp(killed + 59s, true));
  CHECK(watch.IsGivenUp(killed + 60s, true));
  CHECK(watch.GivenUpText({}) ==
        "processes of this node's workers live on 60 s after SIGKILL: the kernel holds them or "
        "another user owns them");
}

TEST_CASE("survivors: a suspension does not count, and what is not killed begins anew") {
  SurvivorWatch watch(60s);
  const TimePoint killed{100s};
  CHECK_FALSE(watch.IsGivenUp(killed, true));
  watch.Postpone(30s);
  CHECK_FALSE(watch.IsGivenUp(killed + 60s, true));
  CHECK(watch.IsGivenUp(killed + 90s, true));

  CHECK_FALSE(watch.IsGivenUp(killed + 91s, false));
  CHECK(watch.next_at() == TimePoint::max());
  CHECK_FALSE(watch.IsGivenUp(killed + 92s, true));
  CHECK(watch.next_at() == killed + 97s);
}

TEST_CASE("survivors: of many the first are named") {
  SurvivorWatch watch(200ms);  // no limit: pure
  std::vector<Survivor> many;
  for (int rank = 0; rank < 6; ++rank) many.push_back({.rank = rank, .pid = kNobody + rank});
  CHECK(watch.GivenUpText(many) ==
        "rank 0 (pid 1073741824), rank 1 (pid 1073741825), rank 2 (pid 1073741826), "
        "rank 3 (pid 1073741827) and 2 more live on 200 ms after SIGKILL: the kernel holds them or "
        "another user owns them");
  CHECK_FALSE(watch.IsGivenUp(TimePoint{1s}, true));
  CHECK(watch.next_at() == TimePoint{1200ms});
}

}  // namespace
}  // namespace ddprun::launcher
