#include "rendezvous/base/durable_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace ddprun {
namespace {

TEST_CASE("durable file: short writes are gone on with") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const std::string text(1 << 20, 'x');  // more than a pipe holds
  size_t got = 0;
  std::thread reader([&] {
    char bytes[8192];
    for (ssize_t n = 0; (n = read(read_end.get(), bytes, sizeof bytes)) > 0;) got += n;
  });
  const absl::Status status = WriteAll(write_end.get(), text, "pipe");
  write_end.Reset();
  reader.join();
  CHECK(status.ok());
  CHECK(got == text.size());
}

TEST_CASE("durable file: errors name the path, the call and the cause") {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  CHECK(WriteAll(full.get(), "x", "/dev/full").message() ==
        "write \"/dev/full\": No space left on device");
  testing::TempDir dir;
  CHECK(SyncDirectory(dir.path().string()).ok());
  const std::string missing = dir.File("none");
  CHECK(SyncDirectory(missing).message() == "open \"" + missing + "\": No such file or directory");
}

}  // namespace
}  // namespace ddprun
