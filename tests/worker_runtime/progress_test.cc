#include "ddp/progress.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/files.h"
#include "tests/support/rank_processes.h"
#include "tests/support/stop_file.h"
#include "tests/support/temp_dir.h"
#include "worker_runtime/progress_word.h"

namespace ddp::testing {
namespace {

using ddprun::testing::MakeStopFile;
using ddprun::testing::ProgressIn;
using ddprun::testing::RankProcesses;
using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;

TEST_CASE("progress: the last word that says something stands in the page, and nothing else") {
  TempDir dir;
  const std::string path = MakeStopFile(dir.File("page"));
  const RankProcesses::Options options{.world_size = 1, .env = {{"DDPRUN_PROGRESS_FILE", path}}};
  RankProcesses ranks(options, [&path](int) {
    ReportProgress(1, 40);
    RankProcesses::Say(std::to_string(ProgressIn(path).done));
    ddp_report_progress(2, 40);
    ReportProgress(3, 0);
    return 0;
  });
  CHECK(ranks.Hear(0) == "1");
  CHECK(ranks.Await(0) == 0);
  CHECK(ProgressIn(path) == internal::ProgressShare{2, 40});
  CHECK(ReadFile(path).substr(0, 8) == std::string(8, '\0'));
}

TEST_CASE("progress: without a place for it, or with one that cannot be used, nothing happens") {
  TempDir dir;
  for (const std::string& path : {std::string(), dir.File("absent"), dir.path().string()}) {
    const RankProcesses::Options options{.world_size = 1, .env = {{"DDPRUN_PROGRESS_FILE", path}}};
    RankProcesses ranks(options, [](int) {
      ReportProgress(1, 40);
      ReportProgress(2, 40);
      return 0;
    });
    CHECK(ranks.Await(0) == 0);
  }
}

}  // namespace
}  // namespace ddp::testing
