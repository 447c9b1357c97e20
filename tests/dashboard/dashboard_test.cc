// The dashboard's page, as the program carries it, in a real browser (page_test.py).
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <string_view>

#include "launcher/dashboard/page.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

constexpr std::chrono::minutes kPatience(4);

void CheckInBrowser(const std::string& name) {
  CAPTURE(name);
  const TempDir folder;
  const std::string page = WriteFile(folder.File("page.html"), launcher::kDashboardPage);
  Subprocess test(
      {"/usr/bin/env", "python3", Runfile("tests/dashboard/page_test.py"), "--page", page, name});
  CHECK_MESSAGE(test.Wait(kPatience) == 0, test.Describe());
  constexpr std::string_view kSkipped = "SKIPPED: ";
  const std::string out = test.out();
  if (out.rfind(kSkipped, 0) == 0) {
    return SkipTest(out.substr(kSkipped.size(), out.find('\n') - kSkipped.size()));
  }
  CHECK_MESSAGE(out == name + ": passed\n", test.Describe());
}

TEST_CASE("page: it is one file of less than 64 KiB that names no other") {
  const std::string page(launcher::kDashboardPage);
  CHECK(page.size() < 65536);
  CHECK(page != Contains("@include"));
  CHECK(page != Contains("innerHTML"));
  CHECK(page != Contains("https:"));
}

TEST_CASE("page: a healthy job is shown in numbers, cells and plots") { CheckInBrowser("healthy"); }

TEST_CASE("page: one that is opened late shows the hour before") { CheckInBrowser("opened_late"); }

TEST_CASE("page: a time line shows which buckets backward hides") { CheckInBrowser("buckets"); }

TEST_CASE("page: a hung job names the rank that is late and those that wait for it") {
  CheckInBrowser("hung");
}

TEST_CASE("page: thousands of ranks fit, stale and silent nodes are told apart") {
  CheckInBrowser("many_ranks");
}

TEST_CASE("page: failed, ended, slow and saving ranks look different") { CheckInBrowser("states"); }

TEST_CASE("page: rounds show where the time of a restart went") { CheckInBrowser("restart"); }

TEST_CASE("page: what is not known is called unknown") { CheckInBrowser("unknown"); }

TEST_CASE("page: another version of the status is refused in words") {
  CheckInBrowser("other_version");
}

TEST_CASE("page: hostile texts stay texts") { CheckInBrowser("hostile"); }

TEST_CASE("page: a rank's output is followed until it is refused") { CheckInBrowser("output"); }

TEST_CASE("page: a lost connection greys what is shown until it comes back") {
  CheckInBrowser("connection_lost");
}

TEST_CASE("page: the keyboard reaches every rank and its output") { CheckInBrowser("keyboard"); }

TEST_CASE("page: a phone's width is enough") { CheckInBrowser("phone"); }

TEST_CASE("page: texts can be read by day and by night") { CheckInBrowser("dark"); }

}  // namespace
}  // namespace ddprun::testing
