#include "launcher/logs/log_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// A file in a pipe, which takes 64 KiB and then only what is read.
struct Disk {
  Disk() {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    read_end.Reset(ends[0]);
    file = std::make_shared<LogFiles::File>(FileSink(UniqueFd(ends[1]), "/dead/stdout.log"));
  }
  // Takes all, from now on until the file is closed.
  std::thread Answer() {
    return std::thread([this] {
      std::array<char, 4096> buffer;
      for (ssize_t length; (length = read(read_end.get(), buffer.data(), buffer.size())) > 0;) {
        taken.append(buffer.data(), static_cast<size_t>(length));
      }
    });
  }
  UniqueFd read_end;
  std::shared_ptr<LogFiles::File> file;
  std::string taken;
};

const std::string kLine = std::string(99'999, 'x') + '\n';

TEST_CASE("log files: a disk that is slow loses nothing, whatever waits for it") {
  Disk disk;
  std::thread reader = disk.Answer();
  LogFiles files([] {});
  REQUIRE(files.Start({}));
  for (int i = 0; i < 100; ++i) files.Write(disk.file, kLine);
  files.Close(std::move(disk.file));
  files.End();
  reader.join();
  CHECK(disk.taken.size() == 100 * kLine.size());
  CHECK(files.losses().lines == 0);
  CHECK(files.TakeBreak().error == 0);
  CHECK(files.is_idle());
}

TEST_CASE("log files: one that does not answer gets what fits, and the rest is counted") {
  Disk disk;
  LogFiles files([] {});
  REQUIRE(files.Start({}));
  // Cut at another place than between lines.
  const std::string text = kLine + kLine;
  for (int i = 0; i < 80; ++i) {
    files.Write(disk.file, text.substr(0, 150'000));
    files.Write(disk.file, text.substr(150'000));
  }
  CHECK(files.busy_file(LogFiles::kPatience) == "/dead/stdout.log");
  CHECK_FALSE(files.is_idle());
  const uint64_t lost = files.losses().lines;
  CHECK(lost > 0);
  CHECK(files.losses().error == ETIMEDOUT);
  CHECK(files.TakeBreak().path == "/dead/stdout.log");

  std::thread reader = disk.Answer();
  for (int i = 0; i < 100; ++i) files.Write(disk.file, "later\n");
  files.Close(std::move(disk.file));
  files.End();
  reader.join();
  CHECK(files.busy_file(Duration(0)).empty());
  CHECK(disk.taken.ends_with("later\n"));
  const auto lines = std::count(disk.taken.begin(), disk.taken.end(), '\n');
  CHECK(static_cast<uint64_t>(lines) + files.losses().lines == 260);
}

}  // namespace
}  // namespace ddprun::launcher
