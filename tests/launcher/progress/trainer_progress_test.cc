#include "launcher/progress/trainer_progress.h"

#include <doctest/doctest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trainer_server.h"
#include "worker_runtime/progress_word.h"

namespace ddprun::launcher {
namespace {

using testing::Eventually;
using testing::TempDir;
using testing::TrainerServer;
using testing::WriteFile;

// An agent's side, on the test's thread.
struct Node {
  explicit Node(const std::string& url, Duration interval = TrainerProgress::kInterval)
      : page(StopFile::Make(dir.path()).value()),
        progress(TrainerProgress::Make(
            io,
            {.variables = {"KUBEFLOW_TRAINER_SERVER_URL=" + url,
                           "KUBEFLOW_TRAINER_SERVER_TOKEN=" +
                               WriteFile(dir.File("token"), "token-1")}},
            [this](const std::string& text) { said.push_back(text); }, interval)) {}

  void Report(int64_t done, int64_t all) {
    const uint64_t word = ddp::internal::PackProgress(done, all);
    std::fstream file(page->path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(ddp::internal::kProgressOffset);
    file.write(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  template <typename Condition>
  bool RunUntil(Condition condition) {
    return Eventually([&] {
      io.run_for(std::chrono::milliseconds(5));  // no limit: one turn
      return condition();
    });
  }
  // The end, waited for.
  bool End(bool is_success) {
    bool has_ended = false;
    progress->End(is_success);
    progress->AwaitEnd([&] { has_ended = true; });
    return RunUntil([&] { return has_ended; });
  }

  TempDir dir;
  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::shared_ptr<StopFile> page;
  std::vector<std::string> said;
  std::unique_ptr<TrainerProgress> progress;
};

TEST_CASE("trainer progress: where nobody asks there is none of it") {
  boost::asio::io_context io;
  CHECK(TrainerProgress::Make(io, {}, {}) == nullptr);
}

TEST_CASE("trainer progress: the last request goes out at once, however short the job was") {
  TrainerServer server({});
  Node node(server.Url());
  node.progress->BeginRound(true, node.page);
  node.Report(1, 4);
  REQUIRE(node.End(true));
  REQUIRE(server.taken().size() == 1);
  CHECK(server.taken()[0].percent == 100);
  CHECK(node.said.empty());
}

// Far shorter than any wait of these cases.
constexpr Duration kOften = std::chrono::milliseconds(20);  // no limit: an interval

TEST_CASE("trainer progress: what has changed is told again, with the time that is left") {
  TrainerServer server({});
  Node node(server.Url(), kOften);
  const auto is_told = [&](int percent) {
    const auto taken = server.taken();
    return !taken.empty() && taken.back().percent == percent;
  };
  node.progress->BeginRound(true, node.page);
  node.Report(1, 4);
  REQUIRE(node.RunUntil([&] { return is_told(25); }));
  node.Report(2, 4);
  REQUIRE(node.RunUntil([&] { return is_told(50); }));
  REQUIRE(node.End(true));
  const auto taken = server.taken();
  REQUIRE(taken.size() == 3);
  CHECK(taken[0].remaining_seconds == std::nullopt);
  CHECK(taken[1].remaining_seconds.has_value());
  CHECK(taken[2].percent == 100);
  CHECK(node.said.empty());
}

TEST_CASE("trainer progress: a token that comes late is read again, and told of once") {
  TrainerServer server({.token = "token-2"});
  Node node(server.Url(), kOften);
  node.progress->BeginRound(true, node.page);
  node.Report(1, 4);
  REQUIRE(node.RunUntil([&] { return server.answers().size() > 2; }));
  WriteFile(node.dir.File("token"), "token-2");
  REQUIRE(node.RunUntil([&] { return !server.taken().empty(); }));
  CHECK(server.taken()[0].percent == 25);
  REQUIRE(node.End(true));
  REQUIRE(node.said.size() == 1);
  CHECK(node.said[0] == Contains("POST " + server.Url() + ": answer 403 "));
}

TEST_CASE("trainer progress: the end is not kept from a job that said nothing") {
  TrainerServer server({});
  Node node(server.Url());
  node.progress->BeginRound(true, node.page);
  bool has_ended = false;
  node.progress->End(true);
  node.progress->AwaitEnd([&] { has_ended = true; });
  CHECK(has_ended);
  CHECK(server.connections() == 0);
}

TEST_CASE("trainer progress: a server that never answers is given up, and the user is told so") {
  TrainerServer server({.manner = TrainerServer::Manner::kSilent});
  Node node(server.Url());
  node.progress->BeginRound(true, node.page);
  node.Report(1, 4);
  REQUIRE(node.RunUntil([&] { return server.connections() == 1; }));
  CHECK_FALSE(node.progress->is_idle());
  REQUIRE(node.End(true));
  CHECK(server.answers().empty());
  REQUIRE(node.said.size() == 1);
  CHECK(node.said[0] == Contains("no answer in time; the job is not affected"));
}

TEST_CASE("trainer progress: the last request does not stand behind one that hangs") {
  TrainerServer server({.manner = TrainerServer::Manner::kSilentFirst});
  Node node(server.Url());
  node.progress->BeginRound(true, node.page);
  node.Report(1, 4);
  REQUIRE(node.RunUntil([&] { return server.connections() == 1; }));
  REQUIRE(node.End(true));
  REQUIRE(server.taken().size() == 1);
  CHECK(server.taken()[0].percent == 100);
  CHECK(node.said.empty());
  CHECK_FALSE(node.progress->is_idle());
}

TEST_CASE("trainer progress: a round without rank 0 here tells nothing more") {
  TrainerServer server({});
  Node node(server.Url());
  node.progress->BeginRound(true, node.page);
  node.Report(1, 4);
  node.progress->BeginRound(false, node.page);
  REQUIRE(node.End(true));
  CHECK(server.connections() == 0);
}

}  // namespace
}  // namespace ddprun::launcher
