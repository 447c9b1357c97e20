// Control directories that cannot be used: one warning, and the job runs.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <doctest/doctest.h>

#include "tests/e2e/asking.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kWarning[] = "ddprun: warning: `ddprun status` and the like do not reach this job: ";

// That a job whose control directory is `path` runs, and warns once that `why`. `around` is what
// runs ddprun.
void CheckRunsWithout(const std::string& path, const std::string& why, Strings around = {}) {
  Job job;
  for (const char* option : {"--hang-timeout=30", "--max-restarts=1"}) {
    const Strings command = {Runfile("ddprun"), option, Runfile("tests/e2e/toy_worker"),
                             "touch:" + job.File("up"), "until:" + job.File("go")};
    Strings argv = around;
    argv.insert(argv.end(), command.begin(), command.end());
    const Node ddprun = job.RunProgram(argv, {.env = {{"DDPRUN_CONTROL_DIR", path}}});
    REQUIRE_MESSAGE(ddprun->WaitForErr(kWarning), ddprun->Describe());
    CHECK(job.WaitForFile("up"));
    job.Touch("go");
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    CHECK(ddprun->err() == Contains(why));
    CHECK_MESSAGE(CountOf(ddprun->err(), "warning") == 1, ddprun->Describe());
    std::filesystem::remove(job.File("go"));
  }
}

TEST_CASE("control directory: open to others, a file, no place or too long a name") {
  const ControlFolder folder;
  const auto inside = [&](const std::string& name) { return folder.path() + "/" + name; };
  for (const mode_t mode : {0777, 01777, 0750, 0711}) {
    const std::string open = inside("open");
    std::filesystem::create_directory(open);
    REQUIRE(chmod(open.c_str(), mode) == 0);
    CheckRunsWithout(open, "is open to other users; chmod 700 ");
  }
  CheckRunsWithout(WriteFile(inside("file"), ""),
                   "file is no directory; name one with DDPRUN_CONTROL_DIR");
  CheckRunsWithout(inside("file") + "/in", "Not a directory");
  CheckRunsWithout(inside("no/such"), "No such file or directory");
  CheckRunsWithout(inside(std::string(100, 'x')), "is too long a name for a socket's directory");
  std::filesystem::create_directory_symlink(folder.path(), inside("link"));
  CheckRunsWithout(inside("link"), "link is no directory; name one with DDPRUN_CONTROL_DIR");
}

TEST_CASE("control directory: another user's") {
  if (geteuid() != 0) return SkipTest("not root");
  const ControlFolder folder;
  REQUIRE(chown(folder.path().c_str(), 65534, 65534) == 0);
  CheckRunsWithout(folder.path(), "belongs to another user");
}

TEST_CASE("control directory: one on a full or a read-only file system") {
  const ControlFolder folder;
  const Strings with_mount = {"/usr/bin/unshare", "--mount", "/bin/sh", "-c"};
  struct Row {
    const char *script, *why;
  };
  const Row rows[] = {
      {R"(mount -t tmpfs -o nr_inodes=1,mode=0700 none "$DDPRUN_CONTROL_DIR" && exec "$@")",
       "No space left on device"},
      {R"(mount -t tmpfs -o ro,mode=0700 none "$DDPRUN_CONTROL_DIR" && exec "$@")",
       "Read-only file system"}};
  for (const Row& row : rows) {
    Strings around = with_mount;
    around.insert(around.end(), {row.script, "sh"});
    Job job;
    Strings probe = around;
    probe.push_back("/bin/true");
    const Node mounted = job.RunProgram(probe, folder.Here());
    if (mounted->Wait() != 0) return SkipTest("no mount namespace here: " + mounted->err());
    CheckRunsWithout(folder.path(), row.why, around);
  }
}

TEST_CASE("control directory: it is made, and closed to others") {
  Job job;
  const ControlFolder folder;
  const std::string made = folder.path() + "/made";
  const Node ddprun =
      job.Run({}, {"until:" + job.File("go")}, {.env = {{"DDPRUN_CONTROL_DIR", made}}});
  REQUIRE(Eventually([&] { return std::filesystem::exists(made); }));
  struct stat info {};
  REQUIRE(stat(made.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0700);
  REQUIRE(Eventually([&] { return !std::filesystem::is_empty(made); }));
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(std::filesystem::is_empty(made));
}

}  // namespace
}  // namespace ddprun::testing
