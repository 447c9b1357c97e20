#include "launcher/status/torch_reader.h"

#include <doctest/doctest.h>

#include <set>

#include "absl/status/status.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of a group of all ranks of which this one has ended operation `number`.
std::string Flights(const std::string& backend, int number) {
  const std::string text = std::to_string(number);
  return R"({"entries":[{"collective_seq_id":)" + text +
         R"(,"pg_id":0,"process_group":["0","default_pg"],"profiling_name":")" + backend +
         R"(:all_reduce","time_created_ns":1}],"pg_config":{},"pg_status":{"0":{"last_completed_collective":")" +
         text + R"(","last_enqueued_collective":")" + text + R"("}}})";
}

// Workers that take so long to answer, and a clock that goes on for nothing else.
struct Scene {
  explicit Scene(int workers) {
    std::vector<std::string> sockets;
    for (int i = 0; i < workers; ++i) {
      sockets.push_back("/s" + std::to_string(i));
      view.ranks.push_back({.rank = i, .local_rank = i, .pid = 100 + i, .state = "running"});
    }
    reader.emplace(sockets, TorchReader::Means{
                                .ask = [this](const std::string& socket, const auto& pids,
                                              TimePoint deadline) -> absl::StatusOr<FlightRecords> {
                                  asked.push_back(socket);
                                  CHECK(pids == std::vector<int>{7});
                                  now += takes;
                                  if (silent.contains(socket) || now > deadline) {
                                    return absl::UnavailableError("silent");
                                  }
                                  FlightRecords records{.gloo = Flights("gloo", number)};
                                  if (nccl > 0) records.nccl = Flights("nccl", nccl);
                                  return records;
                                },
                                .clock = [this] { return now; }});
  }
  // The ranks whose groups are known.
  std::vector<int> Look(Duration after = seconds(1)) {
    now += after;
    asked.clear();
    for (RankView& rank : view.ranks) rank.groups.clear();
    reader->Fill([](int) { return std::vector<int>{7}; }, 8, view);
    std::vector<int> known;
    for (const RankView& rank : view.ranks) {
      if (!rank.groups.empty()) known.push_back(rank.rank);
    }
    return known;
  }

  TimePoint now{seconds(1000)};
  Duration takes = milliseconds(1);
  int number = 5;
  int nccl = 0;  // 0: nothing is recorded of it
  std::set<std::string> silent;
  std::vector<std::string> asked;
  NodeView view;
  std::optional<TorchReader> reader;
};

using Ranks = std::vector<int>;
using Sockets = std::vector<std::string>;

TEST_CASE("torch reader: a rank is asked each five seconds, and its answer gets old meanwhile") {
  Scene scene(2);
  CHECK(scene.Look() == Ranks{0, 1});
  CHECK(*scene.view.ranks[0].groups[0].asked_s == doctest::Approx(0.001));
  scene.number = 9;
  CHECK(scene.Look(seconds(3)) == Ranks{0, 1});
  CHECK(scene.asked.empty());
  CHECK(scene.view.ranks[0].groups[0].done == 5);
  CHECK(*scene.view.ranks[0].groups[0].asked_s == doctest::Approx(3).epsilon(0.01));
  scene.Look(seconds(3));
  CHECK(scene.asked == Sockets{"/s0", "/s1"});
  CHECK(scene.view.ranks[0].groups[0].done == 9);
}

TEST_CASE("torch reader: all have their turn where the time is too short for all") {
  Scene scene(8);
  scene.takes = milliseconds(60);
  CHECK(scene.Look() == Ranks{0, 1, 2, 3});
  CHECK(scene.Look() == Ranks{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(scene.asked == Sockets{"/s4", "/s5", "/s6", "/s7"});
  // What takes 60 ms is asked each 6 s.
  CHECK(scene.Look(seconds(4)).size() == 8);
  CHECK(scene.asked.empty());
}

TEST_CASE("torch reader: who does not answer keeps the last answer for a minute") {
  Scene scene(2);
  scene.Look();
  scene.silent = {"/s1"};
  CHECK(scene.Look(seconds(50)) == Ranks{0, 1});
  CHECK(scene.asked == Sockets{"/s0", "/s1"});
  CHECK(*scene.view.ranks[1].groups[0].asked_s > 50);
  CHECK(scene.Look(seconds(20)) == Ranks{0});
}

TEST_CASE("torch reader: the groups of both recorders are known") {
  Scene scene(1);
  scene.nccl = 8;
  scene.Look();
  const std::vector<GroupView>& groups = scene.view.ranks[0].groups;
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].done == 5);
  CHECK(groups[1].done == 8);
}

TEST_CASE("torch reader: another process is another worker") {
  Scene scene(1);
  scene.Look();
  scene.view.ranks[0].pid = 200;
  scene.silent = {"/s0"};
  CHECK(scene.Look() == Ranks{});
  CHECK(scene.asked.size() == 1);
}

TEST_CASE("torch reader: ranks that tell of themselves, or do not run, are not asked") {
  Scene scene(4);
  scene.view.ranks[0].step = 7;
  scene.view.ranks[0].step_age_s = 9;
  scene.view.ranks[1].state = "ended";
  scene.view.ranks[2].step = 7;
  scene.view.ranks[2].step_age_s = 11;
  scene.view.ranks[3].local_rank = 9;  // beyond the sockets
  CHECK(scene.Look() == Ranks{2});
  CHECK(scene.asked == Sockets{"/s2"});
  scene.view.ranks[2].groups = {{.key = 1}};
  scene.asked.clear();
  scene.now += seconds(60);
  scene.reader->Fill([](int) { return std::vector<int>{7}; }, 8, scene.view);
  CHECK(scene.asked.empty());
}

}  // namespace
}  // namespace ddprun::launcher
