#include "launcher/report/event_file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace std::chrono_literals;
using testing::ReadFile;

struct Fixture {
  explicit Fixture(Duration timeout = 60s) { Make(timeout); }
  void Make(Duration timeout) {
    file = std::make_unique<EventFile>(
        EventFile::Options{.path = path, .write_timeout = timeout}, *files,
        [this](const std::string& text) { warnings.push_back(text); });
  }
  void Flush() {
    bool is_done = false;
    file->Flush([&] { is_done = true; });
    CHECK(!is_done);
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!is_done && std::chrono::steady_clock::now() < end) {
      if (io.stopped()) io.restart();
      io.run_one_for(1s);
    }
    REQUIRE(is_done);
  }

  testing::TempDir dir;
  std::string path = dir.File("events.jsonl");
  boost::asio::io_context io;
  std::vector<std::string> warnings;
  std::unique_ptr<FileThread> files = std::make_unique<FileThread>(io);
  std::unique_ptr<EventFile> file;
};

// Files may grow to `bytes` only while this lives, as on a full disk. No check may fail meanwhile:
// doctest writes to a file, too.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    old_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, old_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  sighandler_t old_ = SIG_DFL;
};

TEST_CASE("event file: lines are appended to what is there, in their order") {
  Fixture fixture;
  testing::WriteFile(fixture.path, "before\n");
  for (const char* line : {"a", "b", "c"}) fixture.file->Append(line);
  fixture.Flush();
  CHECK(ReadFile(fixture.path) == "before\na\nb\nc\n");
  fixture.file->Append("d");
  fixture.Flush();
  CHECK(ReadFile(fixture.path) == "before\na\nb\nc\nd\n");
  CHECK(fixture.warnings.empty());
  CHECK(fixture.file->lost() == 0);
}

TEST_CASE("event file: one that was moved away is made anew") {
  Fixture fixture;
  fixture.file->Append("a");
  fixture.Flush();
  std::filesystem::rename(fixture.path, fixture.path + ".1");
  fixture.file->Append("b");
  fixture.Flush();
  CHECK(ReadFile(fixture.path + ".1") == "a\n");
  CHECK(ReadFile(fixture.path) == "b\n");
}

TEST_CASE("event file: of a full disk there is one warning, and no half of a line is left") {
  Fixture fixture;
  fixture.file->Append("fits");
  fixture.Flush();
  {
    const FullDisk full(10);
    for (const char* line : {"too long", "this as well", "ok"}) fixture.file->Append(line);
    fixture.Flush();
  }
  fixture.file->Append("again");
  fixture.Flush();
  CHECK(ReadFile(fixture.path) == "fits\nok\nagain\n");
  CHECK(fixture.file->lost() == 2);
  REQUIRE(fixture.warnings.size() == 1);
  CHECK(fixture.warnings[0] == Contains("write \"" + fixture.path + "\": File too large"));
}

TEST_CASE("event file: what is no regular file, or has no folder, loses events and nothing else") {
  Fixture fixture;
  REQUIRE(mkfifo(fixture.path.c_str(), 0600) == 0);
  fixture.file->Append("a");
  fixture.Flush();
  CHECK(fixture.file->lost() == 1);
  std::filesystem::remove(fixture.path);
  std::filesystem::create_directory(fixture.path);
  fixture.file->Append("b");
  fixture.Flush();
  CHECK(fixture.file->lost() == 2);
  CHECK(fixture.warnings.size() == 1);
}

TEST_CASE("event file: a file system that does not answer holds up nobody, and its lines are few") {
  Fixture fixture(20ms);  // lower bound: nothing is written before it is made anew
  auto release = std::make_shared<std::promise<void>>();
  fixture.files->Ask<int>(
      "hang", "", 60s,
      [release] {
        release->get_future().wait();
        return 1;
      },
      [](std::optional<int>) {});
  const size_t count = EventFile::kMaxWaiting + 10;
  for (size_t i = 0; i < count; ++i) fixture.file->Append("line");
  CHECK(fixture.warnings.size() == 1);  // the first is under way, a thousand wait
  CHECK(fixture.file->lost() == 9);
  fixture.Flush();
  CHECK(fixture.file->lost() == count);
  CHECK(fixture.warnings.size() == 1);
  release->set_value();
  fixture.Make(60s);
  fixture.file->Append("later");
  fixture.Flush();
  CHECK(ReadFile(fixture.path) == "later\n");  // what was given up is not written any more
}

}  // namespace
}  // namespace ddprun::launcher
