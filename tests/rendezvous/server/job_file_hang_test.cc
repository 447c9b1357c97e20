// The coordinator's file where its file system does not answer.
#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/server/job_file.h"
#include "tests/support/contains.h"
#include "tests/support/temp_dir.h"
#include "tests/support/virtual_clock.h"

namespace ddprun::rendezvous {
namespace {

// What the user was told, on whichever thread.
class Told {
 public:
  void Add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    all_ += text + "\n";
    changed_.notify_all();
  }
  std::string all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  // When there is something.
  std::string Await() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [this] { return !all_.empty(); });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string all_;
};

const Record kSome{.instance = {}, .epoch = Epoch{1}, .verdict = std::nullopt};

// Behind it the thread has done all that it was asked for.
void WriteThrough(JobFile& file) {
  const auto written = std::make_shared<std::promise<void>>();
  file.Write(kSome, [written] { written->set_value(); });
  REQUIRE(written->get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
}

TEST_CASE(
    "job file: one that does not answer holds up nobody for longer than asked for, and is told") {
  const testing::TempDir directory;
  const std::string run = directory.File("run");
  REQUIRE(mkdir(run.c_str(), 0700) == 0);
  // Opening a FIFO without a writer waits: as good as a file system that hangs.
  const std::string path = run + "/job";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const auto told = std::make_shared<Told>();
  {
    auto file =
        JobFile::Open(run, SteadyClock(), [told](const std::string& text) { told->Add(text); });
    REQUIRE(file.ok());
    const TimePoint before = SteadyNow();
    // lower bound: it hangs
    const auto beginning = (*file)->Begin(0, std::chrono::milliseconds(50));
    REQUIRE(beginning.ok());
    CHECK(beginning->instance.is_known());
    CHECK_FALSE(beginning->is_remembered);
    (*file)->Look(before);
    CHECK(told->all() == "");
    for (int times = 0; times < 2; ++times) (*file)->Look(SteadyNow() + JobFile::kSilentAfter);
    CHECK(told->Await().starts_with("job file: read \"" + path +
                                    "\": its file system does not answer; what a coordinator "
                                    "before this one has left there is not known"));
  }
  // All that was to be said has been said.
  CHECK(CountOf(told->all(), "job file") == 1);
  // The thread was left behind. It goes on now, and puts the file there for which it was asked.
  const int writer = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(writer >= 0);
  close(writer);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!std::filesystem::is_regular_file(path) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  CHECK(std::filesystem::is_regular_file(path));
}

TEST_CASE("job file: one that does not answer when it is written is told as such") {
  const testing::TempDir directory;
  const std::string path = directory.File("run") + "/job";
  std::promise<void> ended;  // of the writing
  const auto told = std::make_shared<Told>();
  {
    auto file = JobFile::Open(directory.File("run"), SteadyClock(),
                              [told](const std::string& text) { told->Add(text); });
    REQUIRE(file.ok());
    REQUIRE((*file)->Begin(0, std::chrono::seconds(30)).ok());
    WriteThrough(**file);
    REQUIRE(unlink(path.c_str()) == 0);
    // Opening a FIFO without a reader waits, too.
    REQUIRE(mkfifo((path + ".new").c_str(), 0600) == 0);
    (*file)->Write(kSome, [&ended] { ended.set_value(); });
    (*file)->Look(SteadyNow() + JobFile::kSilentAfter);
    CHECK(told->Await() == "job file: write \"" + path +
                               "\": its file system does not answer; a coordinator that is "
                               "started again in its place knows of this job only what its nodes "
                               "still know\n");
  }
  const UniqueFd reader(open((path + ".new").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(reader.is_open());
  CHECK(ended.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
}

TEST_CASE("job file: at the end nothing is said of a disk that answers") {
  const testing::TempDir directory;
  const testing::VirtualClock clock;  // not advanced: no limit comes
  const auto told = std::make_shared<Told>();
  {
    auto file = JobFile::Open(directory.File("run"), clock,
                              [told](const std::string& text) { told->Add(text); });
    REQUIRE(file.ok());
    REQUIRE((*file)->Begin(0, std::chrono::seconds(30)).ok());
    WriteThrough(**file);
    (*file)->Forget(std::chrono::seconds(1));
  }
  CHECK(told->all() == "");
}

TEST_CASE("job file: one that does not answer at the end is left behind, and is told") {
  const testing::TempDir directory;
  const std::string run = directory.File("run");
  REQUIRE(mkdir(run.c_str(), 0700) == 0);
  const std::string path = run + "/job";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const auto told = std::make_shared<Told>();
  {
    auto file =
        JobFile::Open(run, SteadyClock(), [told](const std::string& text) { told->Add(text); });
    REQUIRE(file.ok());
    constexpr Duration kAWhile = std::chrono::milliseconds(50);  // lower bound: it hangs
    REQUIRE((*file)->Begin(0, kAWhile).ok());
    (*file)->Forget(kAWhile);
  }
  CHECK(told->Await() == "job file: remove \"" + path +
                             "\": its file system does not answer; delete the file before you use "
                             "this --rdzv-id on this port again, or the next job counts this one's "
                             "restarts as its own\n");
  const int writer = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(writer >= 0);
  close(writer);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::filesystem::exists(run) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  CHECK_FALSE(std::filesystem::exists(run));
}

}  // namespace
}  // namespace ddprun::rendezvous
