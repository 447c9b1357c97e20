// `ddprun bench dp-ddp`: both ways of training on this machine.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

// One step costs a second where instrumented code runs on cores that others use.
constexpr std::chrono::minutes kLong{9};

TEST_CASE("bench: both ways train alike, and table, JSON and page have what was measured") {
  Job job;
  auto bench = job.RunRaw({"bench", "dp-ddp", "--world-sizes=1,2", "--seconds=0.1", "--output",
                           job.File("bench.json"), "--html", job.File("bench.html")});
  REQUIRE_MESSAGE(bench->Wait(kLong) == 0, bench->Describe());
  CHECK(job.IsGone());
  const std::string out = bench->out(), err = bench->err();
  for (const char* row : {"\ndp       1 ", "\ndp       2 ", "\nddp      1 ", "\nddp      2 "}) {
    CHECK(out == Contains(row));
  }
  CHECK(out == Contains("\nbucket_cap_mb: "));
  CHECK(err == Contains("ddprun: bench: measuring 1/9: DataParallel with 1 replica\n"));
  CHECK(err == Contains("ddprun: bench: measuring 9/9: bucket_cap_mb with 2 ranks\n"));
  CHECK(std::count(err.begin(), err.end(), '\n') == 10);  // no rank repeats a line

  const auto json = ParseJson(ReadFile(job.File("bench.json")));
  REQUIRE(json.has_value());
  REQUIRE(json->get_child("rows").size() == 4);
  CHECK(json->get<bool>("losses_equal"));
  const double loss = ElementOf(*json, "rows", 0).get<double>("final_loss");
  CHECK(loss > 0);
  for (size_t i = 0; i < 4; ++i) {
    const Json row = ElementOf(*json, "rows", i);
    const int ranks = i % 2 == 0 ? 1 : 2;
    CAPTURE(i);
    CHECK(row.get<std::string>("way") == (i < 2 ? "dp" : "ddp"));
    CHECK(row.get<int>("ranks") == ranks);
    CHECK(row.get<double>("final_loss") == doctest::Approx(loss).epsilon(1e-4));
    CHECK(row.get<double>("samples_per_second") > 0);
    CHECK(row.get<double>("step_ms") > 0);
    CHECK(row.get_child("memory_bytes").size() == static_cast<size_t>(ranks));
    CHECK((row.get<int64_t>("bytes_moved") > 0) == (ranks > 1));
  }
  CHECK(json->get_child("bucket_cap_sweep.points").size() == 4);
  const std::string page = ReadFile(job.File("bench.html"));
  CHECK(page.rfind("<!DOCTYPE html>\n", 0) == 0);
  CHECK(page.substr(page.size() - 8) == "</html>\n");
}

TEST_CASE("bench: --json prints one object instead of the table and an old name causes a warning") {
  Job job;
  auto bench = job.RunRaw({"bench", "--ranks=1", "--seconds=0.1", "--json"});
  REQUIRE_MESSAGE(bench->Wait(kLong) == 0, bench->Describe());
  CHECK(job.IsGone());
  const auto json = ParseJson(bench->out());
  REQUIRE_MESSAGE(json.has_value(), bench->Describe());
  CHECK(json->get_child("rows").size() == 2);
  const std::string err = bench->err();
  const std::string warning =
      "ddprun: warning: --ranks is an old name: instead of bench --ranks=N,... write "
      "bench --world-sizes=N,... (deprecated since ddprun 0.1.0)\n";
  CHECK(err.find(warning) == 0);
  CHECK(err.find("warning", warning.size()) == std::string::npos);  // no rank repeats it
}

// The one line on stderr of a bench that ended before it began.
std::string RefusalOf(std::vector<std::string> options) {
  Job job;
  options.insert(options.begin(), {"bench", "dp-ddp"});
  auto bench = job.RunRaw(options);
  CHECK_MESSAGE(bench->Wait() == 2, bench->Describe());
  CHECK(bench->out().empty());
  const std::string err = bench->err();
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
  return err;
}

TEST_CASE("bench: a file that cannot be written is told before anything is measured") {
  const TempDir dir;
  CHECK(
      RefusalOf({"--output", "/no/such/a.json"}) ==
      Contains(
          "ddprun: error: bench: --output: write to /no/such/a.json: No such file or directory\n"));
  CHECK(RefusalOf({"--html", dir.path().string()}) ==
        Contains("ddprun: error: bench: --html: " + dir.path().string() +
                 ": expected the path of a regular"));
  CHECK(RefusalOf({"--html", dir.File("a"), "--output", dir.File("a")}) ==
        Contains("ddprun: error: bench: --output and --html name the same file, "));
}

TEST_CASE("bench: a rank that is killed costs its row and the later ones, and none before") {
  Job job;
  // Each measurement is half of that: enough for a test that stands still for a moment.
  auto bench = job.RunRaw({"bench", "dp-ddp", "--world-sizes=1,2", "--seconds=10", "--output",
                           job.File("bench.json"), "--html", job.File("bench.html")});
  REQUIRE_MESSAGE(bench->WaitForErr("measuring 4/9", kLong), bench->Describe());
  // The first measurement in two processes.
  int pid = 0;
  REQUIRE(Eventually([&] { return (pid = job.PidOfRank(1)) != 0; }));
  REQUIRE(kill(pid, SIGKILL) == 0);
  REQUIRE_MESSAGE(bench->Wait(kLong) == 120, bench->Describe());
  CHECK(job.IsGone());
  const std::string why =
      "DistributedDataParallel with 2 ranks: rank 1 of 2 was killed by SIGKILL (signal 9)";
  const std::string out = bench->out(), err = bench->err();
  for (const char* row : {"\ndp       1 ", "\ndp       2 ", "\nddp      1 "})
    CHECK(out == Contains(row));
  CHECK(out != Contains("\nddp      2 "));
  CHECK(out == Contains("\nNot all was measured: " + why + ". Rows that were measured only once"));
  CHECK(err != Contains("measuring 5/9"));
  CHECK(err.ends_with("\nddprun: error: bench: " + why + "\n"));
  const auto json = ParseJson(ReadFile(job.File("bench.json")));
  REQUIRE(json.has_value());
  CHECK(json->get_child("rows").size() == 3);
  CHECK(json->get<std::string>("failure") == why);
  CHECK(ReadFile(job.File("bench.html")) == Contains("Not all was measured: " + why));
}

TEST_CASE("bench: a signal ends it and all that it has started") {
  Job job;
  auto bench = job.RunRaw({"bench", "dp-ddp", "--world-sizes=2", "--seconds=60"});
  // The first measurement runs in a process of its own, and lasts for half a minute.
  REQUIRE_MESSAGE(Eventually([&] { return job.HasWorker(0); }), bench->Describe());
  bench->Signal(SIGTERM);
  CHECK(bench->Wait() == 128 + SIGTERM);
  CHECK(job.IsGone());
}

}  // namespace
}  // namespace ddprun::testing
