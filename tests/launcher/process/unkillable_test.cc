// Workers that SIGKILL does not end: the kernel holds them, as one that waits for a dead disk.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include "launcher/process/guardian.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process.h"
#include "launcher/process/worker_group.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using namespace ddprun::testing;

// Where the freezer of cgroup v1 is mounted; "": nowhere.
std::string FreezerMount() {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.find(" - cgroup ") == std::string::npos) continue;
    if (line.find("freezer", line.find(" - cgroup ")) == std::string::npos) continue;
    std::stringstream fields(line);
    std::string skipped, mount_point;
    fields >> skipped >> skipped >> skipped >> skipped >> mount_point;
    return mount_point;
  }
  return "";
}

// Holds processes so that not even SIGKILL ends them (cgroup v2's freezer lets them die).
class Freezer {
 public:
  Freezer() : mount_(FreezerMount()) {
    if (mount_.empty() && unshare(CLONE_NEWNS) == 0 &&
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("none", dir_.path().c_str(), "cgroup", 0, "freezer") == 0) {
      mount_ = dir_.path();
    }
    path_ = mount_ + "/ddprun-test-" + NewJobMark();
    is_there_ = !mount_.empty() && mkdir(path_.c_str(), 0755) == 0;
    if (is_there_) StartThawer();
  }
  ~Freezer() {
    if (is_there_) {
      Thaw();
      end_of_test_.Reset();
      ReapChild(thawer_);
      WaitUntil([this] { return rmdir(path_.c_str()) == 0; });
    }
    if (mount_ == dir_.path()) umount2(mount_.c_str(), MNT_DETACH);
  }
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;

  bool is_there() const { return is_there_; }
  void Freeze(pid_t pid) const {
    Write("/cgroup.procs", std::to_string(pid));
    Write("/freezer.state", "FROZEN");
    REQUIRE(
        WaitUntil([this] { return testing::ReadFile(path_ + "/freezer.state") == "FROZEN\n"; }));
  }
  void Thaw() const { Write("/freezer.state", "THAWED"); }

 private:
  // Thaws when this test ends in any way: nobody else could end what a killed test has frozen.
  void StartThawer() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    end_of_test_ = UniqueFd(ends[1]);
    const UniqueFd read_end(ends[0]);
    thawer_ = fork();
    if (thawer_ != 0) return;
    setsid();
    end_of_test_.Reset();
    char byte;
    if (read(read_end.get(), &byte, 1) == 0) Thaw();
    _exit(0);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + name) << text << std::flush;
  }

  TempDir dir_;
  std::string mount_;
  std::string path_;
  bool is_there_ = false;
  UniqueFd end_of_test_;
  pid_t thawer_ = 0;
};

// A group with one worker, which runs and is frozen.
struct FrozenGroup {
  explicit FrozenGroup(const Freezer& freezer, Guardian* guardian = nullptr) {
    // lower bound: the frozen worker cannot end
    group = std::make_unique<WorkerGroup>(
        io,
        WorkerGroupOptions{
            .baseline = TestBaseline(), .guardian = guardian, .unkillable_after = 200ms},
        [this](const WorkerEvent& event) { OnEvent(event); });
    WorkerSpec spec{.process = {.executable = ToyWorker(),
                                .argv = {"toy_worker", "say", "ready", "sleep"},
                                .env = TestEnvironment(),
                                .stdout_fd = output.write_end()}};
    group->Start({spec});
    REQUIRE(RunUntil(io, [this] { return worker != 0; }));
    output.ReadUntil("ready\n");
    freezer.Freeze(worker);
  }

  void OnEvent(const WorkerEvent& event) {
    if (const auto* started = std::get_if<WorkerStarted>(&event)) worker = started->pid;
    if (const auto* unkillable = std::get_if<Unkillable>(&event)) given_up = unkillable->text;
    is_over = is_over || std::holds_alternative<GroupEmpty>(event);
  }

  boost::asio::io_context io;
  CapturePipe output;
  pid_t worker = 0;
  std::string given_up;
  bool is_over = false;
  std::unique_ptr<WorkerGroup> group;
};

TEST_CASE("unkillable: a worker that outlives SIGKILL is given up in time") {
  const Freezer freezer;
  if (!freezer.is_there()) return SkipTest("no freezer of cgroup v1 here");
  for (const bool is_killed_at_once : {true, false}) {
    FrozenGroup frozen(freezer);

    if (is_killed_at_once) frozen.group->KillNow();
    if (!is_killed_at_once) frozen.group->Stop(SIGTERM, 10ms);  // lower bound: as above

    CHECK(RunUntil(frozen.io, [&] { return frozen.is_over; }));
    const std::string who = "rank 0 (pid " + std::to_string(frozen.worker) + ")";
    CHECK(frozen.given_up.starts_with(who + " lives on 200 ms after SIGKILL: the kernel holds it"));
    freezer.Thaw();
    ReapChild(frozen.worker);
  }
}

TEST_CASE("unkillable: the end of the group does not wait for such a worker") {
  const Freezer freezer;
  if (!freezer.is_there()) return SkipTest("no freezer of cgroup v1 here");
  FrozenGroup frozen(freezer);
  const TimePoint begin = SteadyNow();

  frozen.group.reset();

  CHECK(SteadyNow() - begin < 20s);
  CHECK(StateOf(frozen.worker) != '-');
  freezer.Thaw();
  ReapChild(frozen.worker);
}

TEST_CASE("unkillable: the guardian stays for such a worker, without a cgroup too") {
  const Freezer freezer;
  if (!freezer.is_there()) return SkipTest("no freezer of cgroup v1 here");
  auto guardian = Guardian::Start(NewJobMark());
  REQUIRE(guardian.ok());
  const pid_t pid = (*guardian)->pid();
  pid_t worker = 0;
  {
    FrozenGroup frozen(freezer, guardian->get());
    worker = frozen.worker;
  }

  guardian->reset();

  CHECK(IsRunning(pid));
  freezer.Thaw();
  CHECK(WaitUntil([&] { return !IsRunning(worker) && !IsRunning(pid); }));
  ReapChild(worker);
  kill(pid, SIGKILL);
  ReapChild(pid);
}

}  // namespace
}  // namespace ddprun::launcher
