#include "launcher/report/node_failures.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using Texts = std::vector<std::string>;

WorkerEnd Exited(int local_rank, int code) {
  return {.local_rank = local_rank,
          .pid = 70 + local_rank,
          .exit_code = code,
          .message = "exit code " + std::to_string(code)};
}

WorkerEnd Killed(int local_rank, int signal) {
  WorkerEnd end = Exited(local_rank, 128 + signal);
  end.signal = signal;
  return end;
}

// The failures of a node whose first worker has rank 4.
struct Fixture {
  Fixture() { Begin(4); }
  void Begin(int first_rank) {
    rendezvous::Assignment assignment;
    assignment.first_rank = first_rank;
    assignment.node_rank = 2;
    failures.BeginRound(assignment);
  }
  // The worker's error file, with this text in it.
  std::string Leave(int local_rank, const std::string& text) {
    const std::string path = dir.File("error" + std::to_string(local_rank));
    std::ofstream(path) << text;
    failures.SetErrorFile(local_rank, path);
    return path;
  }
  // "rank message", of those that are described.
  Texts Seen() const {
    Texts seen;
    for (const rendezvous::FailureReport& report : failures.failures()) {
      const std::string what = report.error ? report.error->message : report.message;
      seen.push_back(std::to_string(report.rank) + " " + what);
    }
    return seen;
  }

  testing::TempDir dir;
  Texts said;
  std::vector<int> asked;  // local ranks whose last lines were asked for
  NodeFailures failures{NodeId{"n1"}, "alpha",
                        [this](int local_rank, size_t max_lines, Duration timeout) {
                          CHECK(max_lines > 0);
                          CHECK(timeout <= kTailTimeout);
                          asked.push_back(local_rank);
                          return "last of " + std::to_string(local_rank);
                        },
                        [this](const std::string& line) { said.push_back(line); }};
};

TEST_CASE("node failures: a failure is told with whose it is, its last lines and its error file") {
  Fixture fixture;
  const std::string path =
      fixture.Leave(1, R"({"message": {"message": "ValueError: boom", "extraInfo":)"
                       R"( {"py_callstack": "here", "timestamp": "17", "left_peer": 3}}})");
  WorkerEnd end = Killed(1, 9);
  end.dumped_core = true;
  const rendezvous::FailureReport report = fixture.failures.Describe(end);
  CHECK(report.node.value == "n1");
  CHECK(report.host == "alpha");
  CHECK(report.node_rank == 2);
  CHECK(report.rank == 5);
  CHECK(report.local_rank == 1);
  CHECK(report.pid == 71);
  CHECK(report.exit_code == 137);
  CHECK(report.signal == 9);
  CHECK(report.dumped_core);
  CHECK(report.message == "exit code 137");
  CHECK(report.stderr_tail == "last of 1");
  CHECK(report.unix_time_ms > 0);
  CHECK(report.error_file == path);
  CHECK(report.left_peer == 3);
  REQUIRE(report.error);
  CHECK(*report.error == rendezvous::WorkerError{"ValueError: boom", "here", 17});
  CHECK(fixture.said.empty());
}

TEST_CASE("node failures: a worker without an error file is told without one") {
  Fixture fixture;
  fixture.failures.SetErrorFile(0, "");
  fixture.failures.SetErrorFile(1, fixture.dir.File("none"));
  for (const int local_rank : {0, 1}) {
    const rendezvous::FailureReport report = fixture.failures.Describe(Exited(local_rank, 3));
    CHECK(report.error_file.empty());
    CHECK_FALSE(report.error);
  }
  CHECK(fixture.said.empty());
  const auto text = fixture.failures.FirstErrorText();
  REQUIRE(text.ok());
  CHECK(text->empty());
}

TEST_CASE("node failures: an error file that cannot be used is told once, with its rank and why") {
  Fixture fixture;
  const std::string broken = fixture.Leave(0, "{");
  const std::string link = fixture.dir.File("link");
  REQUIRE(symlink(broken.c_str(), link.c_str()) == 0);
  const std::string fifo = fixture.dir.File("fifo\n");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  fixture.failures.SetErrorFile(1, link);
  fixture.failures.SetErrorFile(2, fifo);
  for (const int local_rank : {0, 1, 2}) fixture.failures.Heard(Exited(local_rank, 1), false);
  fixture.failures.Complete();
  fixture.failures.Complete();
  const std::string escaped = fixture.dir.File("fifo\\n");
  CHECK(fixture.said ==
        Texts{"warning: the error file of rank 4, " + broken + ", is no valid JSON",
              "warning: the error file of rank 5, " + link + ", is a symbolic link",
              "warning: the error file of rank 6, " + escaped + ", is no regular file"});
  CHECK(fixture.failures.failures().at(0).error_file == broken);
  CHECK_FALSE(fixture.failures.failures().at(0).error);
}

TEST_CASE("node failures: a worker that was told to stop failed only if its error file says so") {
  Fixture fixture;
  fixture.Leave(1, R"({"message": "lost it on the way"})");
  for (const int local_rank : {0, 1}) fixture.failures.Heard(Killed(local_rank, 15), true);
  fixture.failures.Complete();
  CHECK(fixture.Seen() == Texts{"5 lost it on the way"});
  CHECK(fixture.failures.left_out() == 0);
  // One that is reported after all, because nobody had told it, is.
  fixture.failures.Describe(Killed(0, 15));
  CHECK(fixture.Seen() == Texts{"4 exit code 143", "5 lost it on the way"});
}

TEST_CASE("node failures: they stand in the order in which they were heard of") {
  Fixture fixture;
  fixture.failures.Heard(Exited(2, 7), false);
  fixture.failures.Heard(Exited(0, 7), false);
  CHECK(fixture.Seen().empty());
  // The other nodes wait for the first that was told; the rest has time.
  fixture.failures.Describe(Exited(0, 7));
  CHECK(fixture.Seen() == Texts{"4 exit code 7"});
  fixture.failures.Complete();
  CHECK(fixture.Seen() == Texts{"6 exit code 7", "4 exit code 7"});
  CHECK(fixture.asked == std::vector<int>{0, 2});
}

TEST_CASE("node failures: what was told of a worker stays what it was") {
  Fixture fixture;
  fixture.Leave(0, R"({"message": "first"})");
  const rendezvous::FailureReport told = fixture.failures.Describe(Exited(0, 1));
  fixture.Leave(0, R"({"message": "second"})");
  CHECK(fixture.failures.Describe(Exited(0, 1)) == told);
  fixture.failures.Complete();
  CHECK(fixture.Seen() == Texts{"4 first"});
}

TEST_CASE("node failures: a new round knows nothing of the one before") {
  Fixture fixture;
  fixture.Leave(0, R"({"message": "of the first round"})");
  fixture.failures.Describe(Exited(0, 1));
  fixture.Begin(8);
  CHECK(fixture.Seen().empty());
  const rendezvous::FailureReport report = fixture.failures.Describe(Exited(0, 2));
  CHECK(report.rank == 8);
  CHECK(report.exit_code == 2);
  CHECK_FALSE(report.error);
}

TEST_CASE("node failures: a program that did not start has no error file, whatever lies there") {
  Fixture fixture;
  fixture.Leave(0, R"({"message": "somebody else's"})");
  WorkerEnd end = Exited(0, 127);
  end.pid = 0;
  CHECK_FALSE(fixture.failures.Describe(end).error);
}

TEST_CASE("node failures: the first error file is handed on with the exit code") {
  Fixture fixture;
  fixture.failures.Describe(Exited(0, 3));  // has none
  fixture.Leave(1, R"({"message": {"message": "boom"}, "kept": "too"})");
  fixture.failures.Describe(Killed(1, 9));
  fixture.Leave(2, R"({"message": {"message": "later"}})");
  fixture.failures.Describe(Exited(2, 5));
  const auto text = fixture.failures.FirstErrorText();
  REQUIRE_MESSAGE(text.ok(), text.status().ToString());
  const auto json = testing::ParseJson(*text);
  REQUIRE(json);
  CHECK(json->get<std::string>("message.message") == "boom");
  CHECK(json->get<int>("message.errorCode") == -9);
  CHECK(json->get<std::string>("kept") == "too");
}

TEST_CASE("node failures: of very many the texts of some are kept, the codes of all") {
  Fixture fixture;
  constexpr int kFailed = 40;
  constexpr int kStopped = 5;
  for (int i = 0; i < kFailed + kStopped; ++i) {
    fixture.Leave(i, R"({"message": "boom"})");
    fixture.failures.Heard(Exited(i, 1), /*was_told_to_stop=*/i >= kFailed);
  }
  fixture.failures.Complete();
  const std::vector<rendezvous::FailureReport> reports = fixture.failures.failures();
  REQUIRE(reports.size() == kFailed);
  CHECK(reports.front().error);
  CHECK(reports.front().stderr_tail == "last of 0");
  CHECK_FALSE(reports.back().error);
  CHECK(reports.back().stderr_tail.empty());
  CHECK(reports.back().exit_code == 1);
  CHECK(fixture.asked.size() < kFailed);
  CHECK(fixture.failures.left_out() == kStopped);
  fixture.failures.Complete();
  CHECK(fixture.failures.left_out() == kStopped);
  fixture.Begin(0);
  CHECK(fixture.failures.left_out() == 0);
}

}  // namespace
}  // namespace ddprun::launcher
