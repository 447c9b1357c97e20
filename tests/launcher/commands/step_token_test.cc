#include "launcher/commands/step_token.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kName[] = ".ddprun-7.0-0.token";
constexpr char kOther[] = "another-token-of-thirty-two-characters\n";

// Where the step's nodes start, and this process is.
struct Step {
  Step() {
    config.cluster_line = "a job of two nodes";
    config.cluster = {.step = "Slurm step 7.0", .nodes = 2};
    config.nodes = {2, 2};
    fs::current_path(dir.File(""));
  }
  ~Step() { fs::current_path(before); }
  // A disk of this machine counts as the cluster's.
  absl::StatusOr<std::unique_ptr<StepToken>> Take() const {
    return StepToken::Take(config, {}, [](const char*) { return true; });
  }
  std::string Trouble() const {
    const auto taken = Take();
    REQUIRE_FALSE(taken.ok());
    return std::string(taken.status().message());
  }

  const fs::path before = fs::current_path();
  testing::TempDir dir;
  LaunchConfig config;
};

TEST_CASE("step token: the first node makes it, the others read it, and it goes with the first") {
  const Step step;
  {
    const auto first = step.Take(), second = step.Take();
    REQUIRE(first.ok());
    REQUIRE(second.ok());
    REQUIRE((*first)->text());
    CHECK((*first)->text() == (*second)->text());
    struct stat found {};
    REQUIRE(stat(kName, &found) == 0);
    CHECK((found.st_mode & 0777) == 0600);
    CHECK(found.st_nlink == 1);
  }
  CHECK_FALSE(fs::exists(kName));
}

TEST_CASE("step token: a folder that the cluster does not share has none") {
  const Step step;
  const auto taken = StepToken::Take(step.config, {}, [](const char*) { return false; });
  REQUIRE(taken.ok());
  CHECK_FALSE((*taken)->text());
  CHECK_FALSE(fs::exists(kName));
}

TEST_CASE("step token: a link in its place is refused, to whatever file of the user it leads") {
  const Step step;
  testing::WriteFile("other", kOther, 0600);
  for (const char* target : {"other", "nothing", kName}) {
    CAPTURE(target);
    fs::create_symlink(target, kName);
    const std::string trouble = step.Trouble();
    CHECK(
        trouble ==
        Contains("the step's token .ddprun-7.0-0.token: it is a link, which others may have made"));
    CHECK(trouble ==
          Contains("; another file of that name must go, or give a token, or --no-cluster"));
    CHECK(trouble != Contains("thirty"));
    CHECK(fs::is_symlink(kName));  // who has put it there is to be seen
    fs::remove(kName);
  }
}

TEST_CASE("step token: a file in its place that others know is refused") {
  const Step step;
  testing::WriteFile(kName, kOther, 0640);
  CHECK(step.Trouble() == Contains("its mode is 640, so others may read it"));
  fs::remove(kName);
  if (geteuid() != 0) return testing::SkipTest("only root gives files away");
  testing::WriteFile(kName, kOther, 0600);
  REQUIRE(chown(kName, 65534, 65534) == 0);
  CHECK(step.Trouble() == Contains("it belongs to user 65534, who knows what is in it"));
}

// What another member of the group does who may write to the folder.
TEST_CASE("step token: whoever takes the file away while it is made gets no step without one") {
  const Step step;
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) {
      std::error_code has_gone;
      // Its ++ would throw where the folder cannot be read on.
      for (fs::directory_iterator file(".", has_gone); file != fs::directory_iterator();
           file.increment(has_gone)) {
        std::error_code ignored;
        if (file->path().filename() != kName) fs::remove(*file, ignored);
      }
    }
  });
  std::string trouble;
  CHECK(testing::Eventually([&] {
    const auto taken = step.Take();
    if (!taken.ok()) trouble = std::string(taken.status().message());
    return !taken.ok() || !(*taken)->text();
  }));
  is_over = true;
  other.join();
  CHECK(trouble == Contains("somebody has removed the file while this node made it"));
}

}  // namespace
}  // namespace ddprun::launcher
