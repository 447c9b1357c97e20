#include "launcher/report/whole_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace {
std::atomic<int> umask_calls = 0;
}  // namespace

// Stands before the C library's.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++umask_calls;
  return static_cast<mode_t>(syscall(SYS_umask, mask));
}

namespace ddprun::launcher {
namespace {

using testing::ReadFile;

size_t FilesIn(const testing::TempDir& dir) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir.path()), {}));
}

TEST_CASE("whole file: a new text replaces the old by renaming, and nothing is left beside it") {
  const testing::TempDir dir;
  const std::string path = dir.File("report.json");
  REQUIRE(WriteWholeFile(path, "old").ok());
  // Who reads the old file meanwhile reads all of it.
  std::ifstream reader(path);
  REQUIRE(WriteWholeFile(path, "new").ok());
  CHECK(std::string(std::istreambuf_iterator<char>(reader), {}) == "old");
  CHECK(ReadFile(path) == "new");
  CHECK(FilesIn(dir) == 1);
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0400) != 0);
}

TEST_CASE("whole file: it is as readable as the umask has it") {
  const testing::TempDir dir;
  const mode_t before = umask(027);
  CHECK(WriteWholeFile(dir.File("report.json"), "text").ok());
  umask(before);
  struct stat about {};
  REQUIRE(stat(dir.File("report.json").c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0640);
}

TEST_CASE("whole file: in place of a file it is as readable as that one") {
  for (const mode_t mode : {0600, 0664}) {
    const testing::TempDir dir;
    const std::string path = dir.File("report.json");
    std::ofstream(path) << "old";
    REQUIRE(chmod(path.c_str(), mode) == 0);
    CHECK(WriteWholeFile(path, "new").ok());
    struct stat about {};
    REQUIRE(stat(path.c_str(), &about) == 0);
    CHECK((about.st_mode & 07777) == mode);
    CHECK(ReadFile(path) == "new");
  }
}

TEST_CASE("whole file: the umask, which all threads share, is left alone") {
  const testing::TempDir dir;
  umask_calls = 0;
  CHECK(WriteWholeFile(dir.File("report.json"), "text").ok());
  CHECK(umask_calls == 0);
}

TEST_CASE("whole file: a link stays a link, as a bind-mounted file would") {
  const testing::TempDir dir;
  REQUIRE(symlink("target", dir.File("link").c_str()) == 0);
  REQUIRE(WriteWholeFile(dir.File("link"), "text").ok());
  CHECK(std::filesystem::is_symlink(dir.File("link")));
  CHECK(ReadFile(dir.File("target")) == "text");
}

TEST_CASE("whole file: another user's link is not followed, and is named before and after") {
  if (geteuid() != 0) return testing::SkipTest("only root can give a link away");
  const testing::TempDir dir;
  const std::string link = dir.File("link");
  const std::string chain = dir.File("chain");  // ours, to another's
  REQUIRE(symlink("target", link.c_str()) == 0);
  REQUIRE(lchown(link.c_str(), 65534, 65534) == 0);
  REQUIRE(symlink(link.c_str(), chain.c_str()) == 0);
  for (const bool is_there : {false, true}) {
    if (is_there) std::ofstream(dir.File("target")) << "kept";
    for (const std::string& path : {link, chain}) {
      const std::string expected = link + ": it is a symbolic link of user 65534";
      CHECK(std::string(CheckWritable(path).message()).find(expected) == 0);
      CHECK(std::string(WriteWholeFile(path, "x").message()).find(expected) == 0);
      CHECK(WriteIfThere(path, "x").ok());
    }
  }
  CHECK(ReadFile(dir.File("target")) == "kept");
}

TEST_CASE("whole file: what cannot be written is named with its path, before and after") {
  const testing::TempDir dir;
  const std::string missing = dir.File("no/such/report.json");
  CHECK(CheckWritable(missing).message() == Contains(missing));
  CHECK(WriteWholeFile(missing, "x").message() == Contains(missing));
  CHECK_FALSE(CheckWritable(dir.path().string()).ok());
  REQUIRE(mkfifo(dir.File("fifo").c_str(), 0600) == 0);
  CHECK(CheckWritable(dir.File("fifo")).message() == Contains("expected the path of a"));
  CHECK_FALSE(WriteWholeFile(dir.File("fifo"), "x").ok());
}

TEST_CASE("whole file: a link into a folder that is missing is refused before") {
  const testing::TempDir dir;
  REQUIRE(symlink("no/such/report.json", dir.File("link").c_str()) == 0);
  REQUIRE(symlink(dir.File("link").c_str(), dir.File("chain").c_str()) == 0);
  for (const std::string name : {"link", "chain"}) {
    const std::string message(CheckWritable(dir.File(name)).message());
    CHECK(message ==
          Contains(dir.File(name) + " (a link to " + dir.File("no/such/report.json") + ")"));
    CHECK_FALSE(WriteWholeFile(dir.File(name), "x").ok());
  }
  // One that leads to no file yet can be written, and nothing is left of the check.
  REQUIRE(symlink("target", dir.File("good").c_str()) == 0);
  CHECK(CheckWritable(dir.File("good")).ok());
  CHECK_FALSE(std::filesystem::exists(dir.File("target")));
  CHECK(FilesIn(dir) == 3);
}

TEST_CASE("whole file: behind a descriptor of ours nothing is emptied or written over") {
  const testing::TempDir dir;
  const UniqueFd log(open(dir.File("log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(log.is_open());
  const auto say = [&log](const char* text) {
    return write(log.get(), text, strlen(text)) == static_cast<ssize_t>(strlen(text));
  };
  REQUIRE(say("before\n"));
  const std::string number = std::to_string(log.get());
  REQUIRE(symlink(("/dev/fd/" + number).c_str(), dir.File("link").c_str()) == 0);
  const std::string paths[] = {"/dev/fd/" + number, "/proc/self/fd/" + number,
                               "/proc/" + std::to_string(getpid()) + "/fd/" + number,
                               "/dev//fd/" + number, dir.File("link")};
  std::string expected = "before\n";
  for (const std::string& path : paths) {
    CAPTURE(path);
    CHECK(CheckWritable(path).ok());
    CHECK(WriteWholeFile(path, "report\n").ok());
    // What is said behind it stands behind it.
    REQUIRE(say("after\n"));
    expected += "report\nafter\n";
    CHECK(ReadFile(dir.File("log")) == expected);
  }
}

TEST_CASE("whole file: a descriptor of ours may be a pipe, and has to be open for writing") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  const std::string path = "/dev/fd/" + std::to_string(writing.get());
  CHECK(CheckWritable(path).ok());
  CHECK(WriteWholeFile(path, "report").ok());
  char text[16];
  CHECK(read(reading.get(), text, sizeof(text)) == 6);
  const std::string other = "/dev/fd/" + std::to_string(reading.get());
  CHECK(CheckWritable(other).message() == Contains("is not open for writing"));
  CHECK_FALSE(CheckWritable("/dev/fd/1000").ok());
}

TEST_CASE("whole file: the check leaves nothing behind and touches no text") {
  const testing::TempDir dir;
  CHECK(CheckWritable(dir.File("a")).ok());
  CHECK(FilesIn(dir) == 0);
  std::ofstream(dir.File("b")) << "kept";
  CHECK(CheckWritable(dir.File("b")).ok());
  CHECK(ReadFile(dir.File("b")) == "kept");
}

}  // namespace
}  // namespace ddprun::launcher
