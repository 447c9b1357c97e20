#include "launcher/process/owner_tag.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/process/process.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

std::string TagOfGoneProcess() {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  std::string tag = OwnerTag(pid);
  kill(pid, SIGKILL);
  ReapChild(pid);
  return tag;
}

TEST_CASE("owner tag: a living process is told from one that has gone") {
  const std::string own = OwnerTag();
  REQUIRE_FALSE(own.empty());
  CHECK_FALSE(IsOwnerGone(own));
  CHECK_FALSE(IsOwnerGone(OwnerTag(getppid())));
  CHECK(IsOwnerGone(TagOfGoneProcess()));
}

TEST_CASE("owner tag: nothing is known of another machine's process, nor of what is no tag") {
  std::string elsewhere = TagOfGoneProcess();
  elsewhere[0] = elsewhere[0] == '0' ? '1' : '0';
  CHECK_FALSE(IsOwnerGone(elsewhere));
  const std::string gone = TagOfGoneProcess();
  for (const std::string& text :
       {std::string(), std::string("none"), gone + "x", gone + "-1", "0" + gone, gone.substr(1),
        gone.substr(0, 8), gone.substr(0, 9), gone.substr(0, 9) + "-1", gone.substr(0, 9) + "0",
        gone + "99999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(IsOwnerGone(text));
  }
}

TEST_CASE("owner tag: only this user's directories of gone owners are found") {
  const TempDir dir;
  const std::string root = dir.path().string();
  const std::string gone = TagOfGoneProcess();
  const auto tag_of = [](std::string_view name) {
    return name.substr(0, 2) == "x_" ? name.substr(2) : std::string_view();
  };
  for (const std::string& name : {"x_" + gone, "x_" + OwnerTag(), "y_" + gone}) {
    REQUIRE(mkdir((root + "/" + name).c_str(), 0755) == 0);
  }
  WriteFile(root + "/x_" + TagOfGoneProcess(), "a file");
  CHECK(AbandonedIn(root, tag_of) == std::vector<std::string>{root + "/x_" + gone});
  CHECK(AbandonedIn(root + "/none", tag_of).empty());
  if (geteuid() == 0) {
    REQUIRE(chown((root + "/x_" + gone).c_str(), 12345, 12345) == 0);
    CHECK(AbandonedIn(root, tag_of).empty());
  }
}

TEST_CASE("owner tag: among many living owners the search ends") {
  const TempDir dir;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(mkdir(dir.File(std::to_string(i)).c_str(), 0755) == 0);
  }
  int asked = 0;
  const std::string living = OwnerTag();
  CHECK(AbandonedIn(dir.path().string(), [&](std::string_view) {
          ++asked;
          return std::string_view(living);
        }).empty());
  CHECK(asked < 50);
}

TEST_CASE("owner tag: what was left before a boot does not end the search") {
  const TempDir dir;
  std::string gone = TagOfGoneProcess();
  std::string elsewhere = gone;
  elsewhere[0] = elsewhere[0] == '0' ? '1' : '0';
  for (int i = 0; i < 101; ++i) {
    REQUIRE(mkdir(dir.File(std::to_string(i)).c_str(), 0755) == 0);
  }
  int asked = 0;
  const size_t found = AbandonedIn(dir.path().string(), [&](std::string_view) {
                         return std::string_view(++asked > 100 ? gone : elsewhere);
                       }).size();
  CHECK(found == 3);  // "." and ".." count, and are directories of ours
}

TEST_CASE("owner tag: a full directory is not read to its end") {
  const TempDir dir;
  const std::string gone = TagOfGoneProcess();
  for (int i = 0; i < 1100; ++i) {
    REQUIRE(mkdir(dir.File(std::to_string(i)).c_str(), 0755) == 0);
  }
  const size_t found = AbandonedIn(dir.path().string(), [&](std::string_view) {
                         return std::string_view(gone);
                       }).size();
  CHECK(found <= 1000);
  CHECK(found >= 998);  // "." and ".." count, and are directories of ours
}

}  // namespace
}  // namespace ddprun::launcher
