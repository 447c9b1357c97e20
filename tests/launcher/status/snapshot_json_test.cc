#include "launcher/status/snapshot_json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/launcher/status/snapshots.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"

namespace ddprun::launcher {
namespace {

using testing::FullJob;
using testing::TrainingJob;
using testing::TrainingNode;

std::string Repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// The message with which `text` is refused as a job; "" where it is taken.
std::string RefusalOf(const std::string& text) {
  const absl::StatusOr<JobView> job = ParseJobJson(text);
  return job.ok() ? "" : std::string(job.status().message());
}

TEST_CASE("snapshot json: every member comes back as it was") {
  const JobView job = FullJob();
  for (const JsonForm form : {JsonForm::kOneLine, JsonForm::kIndented}) {
    const absl::StatusOr<JobView> back = ParseJobJson(RenderJson(job, form));
    REQUIRE_MESSAGE(back.ok(), back.status().ToString());
    CHECK(*back == job);
  }
  const absl::StatusOr<NodeView> node = ParseNodeJson(RenderNodeJson(job.nodes[1]));
  REQUIRE_MESSAGE(node.ok(), node.status().ToString());
  CHECK(*node == job.nodes[1]);
  CHECK(*ParseJobJson(RenderJson(JobView())) == JobView());
  CHECK(*ParseNodeJson(RenderNodeJson(NodeView())) == NodeView());
}

TEST_CASE("snapshot json: one line holds all members, those that are unknown as null") {
  JobView job;
  RankView& rank = job.nodes.emplace_back().ranks.emplace_back();
  rank.groups.emplace_back().key = 0xab;
  rank.buckets.emplace_back();
  job.up_s = 1.0 / 3;
  CHECK(
      RenderJson(job) ==
      R"({"version":1,"run_id":"","program":"","state":"","is_healthy":true,"sentence":"",)"
      R"("waiting_line":"","problems":[],"round":0,"min_nodes":1,"max_nodes":1,"world_size":0,)"
      R"("node_count":0,"restart_count":0,"max_restarts":0,"up_s":0.333333,"waiting_for":"",)"
      R"("waiting_left_s":null,"gone_nodes":"","bad_nodes":0,"bad_hosts":"","coordinator_silent_s":null,)"
      R"("step":null,"samples_per_s":null,"step_s":null,)"
      R"("exposed_share":null,"effective_share":null,"checkpoint_s":0.0,"evaluation_s":0.0,)"
      R"("restart_s":0.0,"start_s":0.0,"stall_s":0.0,"nodes":[{"id":"","host":"","name":"","node_rank":-1,"state":"",)"
      R"("hosts_coordinator":false,"age_s":0.0,"up_s":0.0,"waiting_for":"",)"
      R"("waiting_left_s":null,"gone_node":"","health":"","health_line":"","ranks":[{"rank":0,"local_rank":0,"pid":0,"state":"","end":"",)"
      R"("wait":"","up_s":null,"cpu":null,"core_wait_share":null,"idle_s":null,"memory":null,"gpu":null,)"
      R"("gpu_memory":null,"phase":"unknown","phase_s":0.0,"evaluation_s":0.0,)"
      R"("checkpoint_s":0.0,"step":null,"step_age_s":0.0,"step_s":null,"longest_step_s":null,"samples_per_s":null,"self_s":null,)"
      R"("exposed_share":null,"first_step_s":null,"backward_s":null,)"
      R"("buckets":[{"count":1,"start_s":0.0,"end_s":0.0}],"groups":[{"key":"00000000000000ab",)"
      R"("name":"","rank":0,"size":1,"called":0,"done":0,"op":"","waiting_s":0.0,)"
      R"("quiet_s":0.0,"asked_s":null}],"last_line":"","last_line_age_s":null}],"gpus":[],)"
      R"("memory_used":null,"memory_limit":null,"oom_kills":0,"problems":[]}],)"
      R"("silent_nodes":[],"rounds":[],"first_fault":null})");
}

TEST_CASE("snapshot json: it is JSON whatever bytes and numbers the snapshot holds") {
  JobView job = TrainingJob(1, 1);
  job.program = "a\xff\n\x1b[31m\"";
  job.up_s = std::numeric_limits<double>::quiet_NaN();
  job.start_s = -3;
  job.step_s = std::numeric_limits<double>::infinity();
  job.step = std::numeric_limits<int64_t>::min();
  job.nodes[0].ranks[0].rank = std::numeric_limits<int>::min();
  const std::string text = RenderJson(job);
  CHECK(testing::ParseJson(text));
  CHECK(text == Contains(R"("program":"a�\n\u001b[31m\"",)"));
  CHECK(text == Contains(R"("up_s":0.0,)"));
  CHECK(text == Contains(R"("start_s":0.0,)"));
  CHECK(text == Contains(R"("step_s":null,)"));
  const absl::StatusOr<JobView> back = ParseJobJson(text);
  REQUIRE_MESSAGE(back.ok(), back.status().ToString());
  CHECK(back->step == -(int64_t{1} << 53));
  CHECK(back->program == "a�\\n\\x1b[31m\"");
}

TEST_CASE(
    "snapshot json: a node's text gives up buckets, last lines, quiet groups, then rare members") {
  NodeView node = TrainingNode("host", 0, 0, 40);
  for (RankView& rank : node.ranks) {
    rank.wait = "futex";
    for (uint64_t i = 0; i < 5; ++i) {
      rank.groups.push_back({.key = i + 1, .name = "", .called = 10 + i, .op = "all-reduce"});
    }
    rank.groups[1].waiting_s = 9;
  }
  CHECK(*ParseNodeJson(RenderNodeJson(node)) == node);

  for (RankView& rank : node.ranks) {
    rank.last_line = std::string(700, 'x');
    rank.backward_s = 0.5;
    rank.buckets.resize(14, {.count = 2, .start_s = 0.123456, .end_s = 0.234567});
  }
  NodeView back = *ParseNodeJson(RenderNodeJson(node));
  CHECK(back.ranks[39].buckets.empty());
  CHECK(!back.ranks[39].backward_s);
  CHECK(back.ranks[39].last_line.size() == 700);

  for (RankView& rank : node.ranks) rank.last_line = std::string(1000, 'x');
  back = *ParseNodeJson(RenderNodeJson(node));
  CHECK(back.ranks[39].last_line.empty());
  CHECK(back.ranks[39].groups == node.ranks[39].groups);

  for (RankView& rank : node.ranks) {
    for (GroupView& group : rank.groups) group.name = std::string(200, 'n');
  }
  back = *ParseNodeJson(RenderNodeJson(node));
  REQUIRE(back.ranks[39].groups.size() == 4);
  CHECK(back.ranks[39].groups[0].waiting_s == 9);  // of all, this matters
  CHECK(back.ranks[39].groups[1].called == 88123);
  CHECK(back.ranks[39].groups[3].called == 13);
  CHECK(back.ranks[39].wait == "futex");

  for (RankView& rank : node.ranks) {
    for (GroupView& group : rank.groups) group.name = std::string(290, 'n');
    rank.wait = std::string(200, 'w');
  }
  back = *ParseNodeJson(RenderNodeJson(node));
  CHECK(back.ranks[39].groups.size() == 4);
  CHECK(back.ranks[39].wait.empty());
}

TEST_CASE("snapshot json: a node's text keeps its size whatever the node holds") {
  NodeView node = TrainingNode(std::string(100'000, '\x01'), 0, 0, 5000);
  for (RankView& rank : node.ranks) {
    rank.state = std::string(2000, '\xff');
    rank.groups.resize(100, rank.groups[0]);
  }
  node.problems.resize(2000, {.kind = "gpu", .text = std::string(5000, '"'), .ranks = {}});
  node.problems[0].ranks.resize(200'000, 2'000'000'000);
  node.gpus.resize(2000);
  for (GpuView& gpu : node.gpus) gpu.xids.resize(3000, 79);
  const std::string text = RenderNodeJson(node);
  CHECK(text.size() <= kMaxNodeJsonBytes);
  const absl::StatusOr<NodeView> back = ParseNodeJson(text);
  REQUIRE_MESSAGE(back.ok(), back.status().ToString());
  CHECK(back->ranks.size() > 50);
  CHECK(back->ranks[0].step == 18240);
}

TEST_CASE(
    "snapshot json: a small node with too much of something is sent with what the reader takes") {
  NodeView node = TrainingNode("host", 0, 0, 1);
  node.ranks[0].groups.resize(100);
  node.ranks[0].buckets.resize(100);
  node.ranks[0].last_line = std::string(2000, 'x');
  node.problems.resize(2000);
  const absl::StatusOr<NodeView> back = ParseNodeJson(RenderNodeJson(node));
  REQUIRE_MESSAGE(back.ok(), back.status().ToString());
  CHECK(back->ranks[0].groups.size() == 64);
  CHECK(back->ranks[0].buckets.size() == 14);
  CHECK(back->ranks[0].last_line.size() == 1024);
  CHECK(back->problems.size() == 1024);
}

TEST_CASE("snapshot json: what is wrong is named with its place") {
  const std::string good = RenderJson(FullJob());
  const auto with = [&good](const std::string& from, const std::string& to) {
    REQUIRE(good == Contains(from));
    return RefusalOf(absl::StrReplaceAll(good, {{from, to}}));
  };
  CHECK(with(R"("step_s":0.5,"longest)", R"("step_s":"x\n","longest)") ==
        "status of a job: nodes[0].ranks[0].step_s: 'x\\n', expected a number from 0 to 1e+15");
  CHECK(with(R"("up_s":4000.0)", R"("up_s":-1)") ==
        "status of a job: up_s: -1, expected a number from 0 to 1e+15");
  CHECK(with(R"("up_s":4000.0)", R"("up_s":1e300)") ==
        "status of a job: up_s: 1e+300, expected a number from 0 to 1e+15");
  CHECK(with(R"("up_s":4000.0)", R"("up_s":1e999)") == "status of a job: no valid JSON");
  CHECK(with(R"("pid":1001)", R"("pid":18446744073709551615)") ==
        "status of a job: nodes[0].ranks[1].pid: 18446744073709551615, expected a whole number "
        "from -1 to 2147483647");
  CHECK(with(R"("pid":1001)", R"("pid":1.5)") ==
        "status of a job: nodes[0].ranks[1].pid: 1.5, expected a whole number from -1 to "
        "2147483647");
  CHECK(with(R"("called":9)", R"("called":-9)") ==
        "status of a job: nodes[0].ranks[0].groups[1].called: -9, expected a whole number from 0 "
        "to 9007199254740992");
  CHECK(with(R"("key":"0000000000000007")", R"("key":"00000000000000007")") ==
        "status of a job: nodes[0].ranks[0].groups[1].key: '00000000000000007', expected a text "
        "of up to 16 hexadecimal digits");
  CHECK(with(R"("xids":[79,48])", R"("xids":{"79":48})") ==
        "status of a job: nodes[0].gpus[0].xids: an object, expected a list");
  CHECK(with(R"("silent_nodes":["host-9"])", R"("silent_nodes":[null])") ==
        "status of a job: silent_nodes[0]: null, expected a text");
  CHECK(with(R"("is_healthy":false)", R"("is_healthy":0)") ==
        "status of a job: is_healthy: 0, expected true or false");
  CHECK(with(R"("version":1)", R"("version":2)") ==
        "status of a job: version 2 of the schema, expected 1");
  CHECK(RefusalOf("{}") == "status of a job: version 0 of the schema, expected 1");
  CHECK(RefusalOf("[]") == "status of a job: a list, expected an object");
  CHECK(RefusalOf("7") == "status of a job: 7, expected an object");
  CHECK(RefusalOf("") == "status of a job: no valid JSON");
  CHECK(RefusalOf("{\"version\":1,\"state\":\"\xff\"}") == "status of a job: no valid JSON");
}

TEST_CASE("snapshot json: too much of anything is refused") {
  const std::string head = R"({"version":1,"nodes":[)";
  CHECK(RefusalOf(Repeated("[", 1'000'000)) == "status of a job: nested more than 16 deep");
  CHECK(RefusalOf(Repeated(R"({"a":)", 1'000'000)) == "status of a job: nested more than 16 deep");
  CHECK(RefusalOf(head + Repeated("{},", 2'500'000) + "{}]}") ==
        "status of a job: 5000004 values, at most 4000000");
  CHECK(RefusalOf(head + Repeated("{},", 20'000) + "{}]}") ==
        "status of a job: nodes: 20001 items, at most 16384");
  CHECK(RefusalOf(head + R"({"ranks":[)" + Repeated("{},", 999'999) + "{}]}]}") ==
        "status of a job: nodes[0].ranks: 1000000 items, at most 4096");
  const std::string node = R"({"ranks":[)" + Repeated("{},", 4095) + "{}]}";
  CHECK(RefusalOf(head + Repeated(node + ",", 16) + node + "]}") ==
        "status of a job: nodes[16].ranks[0]: 65537 ranks in the job, at most 65536");
  CHECK(RefusalOf(std::string(kMaxJobJsonBytes + 1, ' ')) ==
        "status of a job: 67108865 bytes, at most 67108864");
  const absl::StatusOr<NodeView> large = ParseNodeJson(std::string(70'000, ' '));
  CHECK(large.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(large.status().message() == "status of a node: 70000 bytes, at most 65536");
}

TEST_CASE("snapshot json: texts are made plain and cut, unknown members and words passed over") {
  const std::string text = absl::StrCat(
      R"({"version":1,"later":{"a":[1]},"state":")", Repeated("é", 3000), R"(","nodes":[{"host":)",
      R"("a\u001b[2J\nb","ranks":[{"phase":"dreaming"}]}],"first_fault":{"last_lines":")",
      Repeated(R"(x\u0007\n)", 20'000), R"("}})");
  const absl::StatusOr<JobView> job = ParseJobJson(text);
  REQUIRE_MESSAGE(job.ok(), job.status().ToString());
  CHECK(job->state == Repeated("é", 512));
  CHECK(job->nodes[0].host == "a\\x1b[2J\\nb");
  CHECK(job->nodes[0].ranks[0].phase == ProgramPhase::kUnknown);
  CHECK(job->first_fault->last_lines.size() <= 16 * 1024);
  CHECK(job->first_fault->last_lines == Contains("x\\x07\nx\\x07\n"));
}

TEST_CASE("snapshot json: a text that was damaged anywhere never does more than be refused") {
  const std::string good = RenderNodeJson(FullJob().nodes[0]);
  std::mt19937 random(7);  // NOLINT: the same damage each time
  const std::string bytes = "{}[]\",:\\0-9eE.ntu\xff\x01";
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (uint32_t n = random() % 3 + 1; n > 0; --n) {
      text[random() % text.size()] = bytes[random() % bytes.size()];
    }
    if (random() % 4 == 0) text.resize(random() % text.size());
    const absl::StatusOr<NodeView> node = ParseNodeJson(text);
    if (node.ok()) CHECK(RenderNodeJson(*node).size() <= kMaxNodeJsonBytes);
  }
}

}  // namespace
}  // namespace ddprun::launcher
