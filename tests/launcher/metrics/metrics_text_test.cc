#include "launcher/metrics/metrics_text.h"

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/metrics/metric_series.h"
#include "tests/launcher/metrics/views.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool HasLine(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

bool HasMetric(const std::string& text, const std::string& name) {
  return text.find("\n" + name + "{") != std::string::npos;
}

// Name and labels of each sample.
std::vector<std::string> SampleNames(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& line : LinesOf(text)) {
    if (line[0] != '#') names.push_back(line.substr(0, line.rfind("} ") + 1));
  }
  return names;
}

template <typename AnySeries>
void AddNames(absl::Span<const AnySeries> all, std::set<std::string>& names) {
  for (const AnySeries& series : all) CHECK(names.insert(series.metric.name).second);
}

TEST_CASE("metrics: the job's and the own node's values have samples, the own ranks' as well") {
  const std::string text = MetricsText(RichView(), "n1");
  for (const char* line :
       {"# TYPE ddprun_job_state gauge", "ddprun_job_state{run_id=\"run7\",kind=\"running\"} 1",
        "ddprun_job_state{run_id=\"run7\",kind=\"forming\"} 0",
        "ddprun_job_healthy{run_id=\"run7\"} 0", "# TYPE ddprun_job_restarts_total counter",
        "ddprun_job_restarts_total{run_id=\"run7\"} 1",
        "ddprun_job_exposed_communication_ratio{run_id=\"run7\"} 0.08",
        "ddprun_job_problems{run_id=\"run7\",kind=\"straggler\"} 1",
        "ddprun_job_problems{run_id=\"run7\",kind=\"hang\"} 0",
        "ddprun_job_problems{run_id=\"run7\",kind=\"other\"} 1",
        "ddprun_job_outside_steps_seconds_total{run_id=\"run7\",kind=\"restart\"} 6.5",
        "ddprun_job_outside_steps_seconds_total{run_id=\"run7\",kind=\"stall\"} 4",
        "ddprun_job_round_start_seconds{run_id=\"run7\",kind=\"rendezvous\"} 0.125",
        "ddprun_node_memory_limit_bytes{run_id=\"run7\",node=\"host1\"} 68719476736",
        "ddprun_rank_resident_bytes{run_id=\"run7\",node=\"host1\",rank=\"3\"} 3221225475",
        "ddprun_rank_waiting_seconds{run_id=\"run7\",node=\"host1\",rank=\"3\"} 0.5",
        "ddprun_rank_collective_operations_total{run_id=\"run7\",node=\"host1\",rank=\"2\"} 37",
        "ddprun_gpu_throttled{run_id=\"run7\",node=\"host1\",gpu=\"0\"} 1",
        "ddprun_gpu_xid_errors_total{run_id=\"run7\",node=\"host1\",gpu=\"0\"} 1"}) {
    CHECK_MESSAGE(HasLine(text, line), line, "\n", text);
  }
  CHECK(text != Contains("host0"));
  CHECK(text != Contains("rank=\"1\""));
}

TEST_CASE("metrics: a view of which everything is known has every metric") {
  std::set<std::string> names;
  AddNames(JobKindSeries(), names);
  AddNames(JobSeries(), names);
  AddNames(NodeSeries(), names);
  AddNames(RankSeries(), names);
  AddNames(GpuSeries(), names);
  const std::string text = "\n" + MetricsText(RichView(), "n0");
  for (const std::string& name : names) CHECK_MESSAGE(HasMetric(text, name), name, text);
}

TEST_CASE("metrics: what is not known has no sample") {
  JobView job;
  job.state = "unknown";
  job.nodes = {{.id = "n0", .host = "host0", .ranks = {{.rank = 0}}, .gpus = {{.index = 0}}}};
  job.step_s = std::numeric_limits<double>::quiet_NaN();
  job.samples_per_s = std::numeric_limits<double>::infinity();
  const std::string text = "\n" + MetricsText(job, "n0");
  CHECK_MESSAGE(HasLine(text, "ddprun_job_state{run_id=\"\",kind=\"unknown\"} 1"), text);
  for (const char* name :
       {"ddprun_job_healthy", "ddprun_job_round", "ddprun_job_nodes", "ddprun_job_ranks",
        "ddprun_job_restarts_total", "ddprun_job_step", "ddprun_job_step_seconds",
        "ddprun_job_samples_per_second", "ddprun_job_outside_steps_seconds_total",
        "ddprun_job_round_start_seconds", "ddprun_node_rank", "ddprun_node_memory_used_bytes"}) {
    CHECK_MESSAGE(!HasMetric(text, name), name, text);
  }
  CHECK(text != Contains("ddprun_rank_"));
  CHECK(text != Contains("ddprun_gpu_"));
}

TEST_CASE("metrics: a job that has not formed a round yet has none, which is known") {
  JobView job;
  job.run_id = "run7";
  job.state = "forming";
  const std::string text = MetricsText(job, "n0");
  CHECK_MESSAGE(HasLine(text, "ddprun_job_round{run_id=\"run7\"} 0"), text);
  CHECK_MESSAGE(HasLine(text, "ddprun_job_nodes{run_id=\"run7\"} 0"), text);
  job.state = "of the future";
  CHECK(HasLine(MetricsText(job, "n0"), "ddprun_job_state{run_id=\"run7\",kind=\"unknown\"} 1"));
}

TEST_CASE("metrics: labels are escaped, printable and at most 128 bytes") {
  JobView job;
  job.run_id = "a\"b\\c\xff\n\x1b";
  const std::string bad = kReplacement;
  const std::string text = MetricsText(job, "");
  CHECK_MESSAGE(
      HasLine(text, "ddprun_job_min_nodes{run_id=\"a\\\"b\\\\c" + bad + bad + bad + "\"} 1"), text);

  job.run_id.clear();
  for (int i = 0; i < 100000; ++i) job.run_id += "\xe2\x82\xac";  // three bytes each
  std::string euros;
  for (int i = 0; i < 42; ++i) euros += "\xe2\x82\xac";
  CHECK(HasLine(MetricsText(job, ""), "ddprun_job_min_nodes{run_id=\"" + euros + "\"} 1"));
}

TEST_CASE("metrics: no two samples have equal labels, whatever the view holds") {
  JobView job = RichView();
  job.nodes[1].host = job.nodes[0].host;
  job.nodes.push_back(job.nodes[0]);  // the same agent twice
  job.nodes[0].ranks.push_back(job.nodes[0].ranks[0]);
  job.nodes[0].ranks.push_back({.rank = -1, .state = "starting"});
  job.nodes[0].gpus.push_back(job.nodes[0].gpus[0]);
  const std::string long_host(300, 'h');
  job.nodes.push_back({.id = std::string(300, 'x'), .host = long_host + "1"});
  job.nodes.push_back({.id = std::string(300, 'y'), .host = long_host + "2"});
  const std::string text = MetricsText(job, "n0", {.has_all_nodes = true});
  std::set<std::string> seen;
  for (const std::string& name : SampleNames(text)) {
    CHECK_MESSAGE(seen.insert(name).second, name);
    CHECK(name != Contains("rank=\"-1\""));
  }
  // Two agents with one name are told apart in the same way by whoever is asked.
  const std::string sample = "ddprun_node_up_seconds{run_id=\"run7\",node=\"host0/n1\"} 70";
  CHECK_MESSAGE(HasLine(text, sample), text);
  CHECK(HasLine(MetricsText(job, "n1"), sample));
}

TEST_CASE("metrics: all nodes are there when they are asked for, but no other ranks") {
  const std::string text = MetricsText(RichView(), "n1", {.has_all_nodes = true});
  CHECK_MESSAGE(HasLine(text, "ddprun_node_rank{run_id=\"run7\",node=\"host0\"} 0"), text);
  CHECK_MESSAGE(HasLine(text, "ddprun_node_rank{run_id=\"run7\",node=\"host1\"} 1"), text);
  CHECK(text != Contains("rank=\"1\""));
}

TEST_CASE("metrics: a scrape is bounded by the own ranks, with all nodes by their number") {
  JobView job = RichView();
  const size_t small = SampleNames(MetricsText(job, "n0")).size();
  for (int i = 2; i < 1024; ++i) {
    NodeView node = job.nodes[0];
    node.id = "n" + std::to_string(i);
    node.host = "worker-" + std::to_string(i) + ".training.svc.cluster.local";
    for (RankView& rank : node.ranks) rank.rank = 2 * i + rank.local_rank;
    job.nodes.push_back(node);
  }
  CHECK(SampleNames(MetricsText(job, "n0")).size() == small);
  const std::string all = MetricsText(job, "n0", {.has_all_nodes = true});
  CHECK(SampleNames(all).size() == small + 1023 * NodeSeries().size());
  CHECK(all.size() < 1024 * 1024);
}

TEST_CASE("metrics: OpenMetrics names a counter without its suffix, and ends") {
  const std::string text = MetricsText(RichView(), "n0", {.is_open_metrics = true});
  CHECK_MESSAGE(HasLine(text, "# TYPE ddprun_job_restarts counter"), text);
  CHECK_MESSAGE(HasLine(text, "ddprun_job_restarts_total{run_id=\"run7\"} 1"), text);
  CHECK(LinesOf(text).back() == "# EOF");
}

TEST_CASE("metrics: who wants OpenMetrics says so") {
  CHECK(
      AcceptsOpenMetrics("application/openmetrics-text;version=1.0.0,application/"
                         "openmetrics-text;version=0.0.1;q=0.75,"
                         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  CHECK(AcceptsOpenMetrics("text/html, Application/OpenMetrics-Text"));
  for (const char* other : {"", "*/*", "text/plain", "application/openmetrics-text; version=0.0.1",
                            "application/openmetrics-text;q=0"}) {
    CHECK_MESSAGE(!AcceptsOpenMetrics(other), other);
  }
}

}  // namespace
}  // namespace ddprun::launcher
