// The metrics, the alerts and the dashboard, judged by a real Prometheus and its promtool.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/metrics/metrics_text.h"
#include "tests/launcher/metrics/http.h"
#include "tests/launcher/metrics/prometheus.h"
#include "tests/launcher/metrics/views.h"
#include "tests/support/contains.h"
#include "tests/support/json.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using testing::Json;
using testing::PageServer;
using testing::Prometheus;
using testing::Promtool;
using testing::ReadFile;
using testing::Runfile;
using testing::SkipTest;
using testing::WhyNoPrometheus;

// "": all is well.
std::string Lint(const std::string& text) {
  const auto lint = Promtool({"check", "metrics"}, text);
  return lint->Wait() == 0 && lint->out().empty() && lint->err().empty() ? "" : lint->Describe();
}

// A node's metrics, which go on as its job does.
class Node {
 public:
  explicit Node(bool is_open_metrics)
      : server_([this, is_open_metrics](const std::string& request) {
          const std::string field = "\r\nAccept: ";
          const size_t accept = request.find(field) + field.size();
          const std::string accepted =
              request.substr(accept, request.find("\r\n", accept) - accept);
          has_been_asked_for_open_metrics_ = AcceptsOpenMetrics(accepted);
          const std::chrono::duration<double> up = std::chrono::steady_clock::now() - begin_;
          return PageServer::Page{
              std::string(MetricsContentType(is_open_metrics)),
              MetricsText(RichViewAfter(up.count()), "n1",
                          {.is_open_metrics = is_open_metrics, .has_all_nodes = true})};
        }) {}
  std::string Url() const { return server_.Url("/metrics"); }
  bool has_been_asked_for_open_metrics() const { return has_been_asked_for_open_metrics_; }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<bool> has_been_asked_for_open_metrics_{false};
  PageServer server_;
};

// All texts in the members `name` of the tree.
void Collect(const Json& json, const std::string& name, std::vector<std::string>& texts) {
  for (const auto& [key, child] : json) {
    if (key == name && child.empty()) texts.push_back(child.data());
    Collect(child, name, texts);
  }
}

std::string ReplaceAll(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// As Grafana asks when every job and node is chosen.
std::vector<std::string> DashboardExpressions() {
  const auto dashboard = testing::ParseJson(ReadFile(Runfile("examples/grafana/ddprun.json")));
  REQUIRE(dashboard);
  CHECK(dashboard->get<int>("schemaVersion") >= 38);
  std::vector<std::string> expressions;
  Collect(*dashboard, "expr", expressions);
  for (std::string& expression : expressions) {
    expression = ReplaceAll(expression, "$job", ".*");
    expression = ReplaceAll(expression, "$node", ".*");
    expression = ReplaceAll(expression, "$__rate_interval", "1m");
    CHECK(expression != Contains("$"));
  }
  REQUIRE(expressions.size() > 30);
  return expressions;
}

// The names in it that begin as ours do.
std::set<std::string> MetricsIn(const std::string& text) {
  static const std::regex kName("ddprun_[a-z0-9_]+");
  return {std::sregex_token_iterator(text.begin(), text.end(), kName), {}};
}

std::set<std::string> EmittedMetrics() {
  std::set<std::string> names;
  std::stringstream text(MetricsText(RichView(), "n0"));
  for (std::string line; std::getline(text, line);) {
    if (line[0] != '#') names.insert(line.substr(0, line.find('{')));
  }
  return names;
}

TEST_CASE("metrics: promtool finds nothing to complain about") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  JobView odd = RichView();
  odd.run_id = "a\"b\\c\xff\n\x1b\t\xe2\x82\xac";
  JobView unknown;
  unknown.state = "unknown";
  for (const JobView& job : {RichView(), odd, unknown, JobView()}) {
    for (const bool has_all : {false, true}) {
      CHECK(Lint(MetricsText(job, "n0", {.has_all_nodes = has_all})) == "");
    }
  }
}

TEST_CASE("metrics: promtool would find a name against the conventions, and a missing meaning") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  CHECK(Lint(ReplaceAll(MetricsText(RichView(), "n0"), "restarts_total", "restarts")) != "");
  CHECK(Lint(ReplaceAll(MetricsText(RichView(), "n0"), "# HELP", "# NOTE")) != "");
}

TEST_CASE("metrics: a Prometheus that scrapes a node has its samples") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  for (const bool is_open_metrics : {false, true}) {
    const Node node(is_open_metrics);
    const Prometheus prometheus(node.Url());
    const std::string ranks = "ddprun_rank_resident_bytes{run_id=\"run7\",node=\"host1\"}";
    REQUIRE_MESSAGE(prometheus.WaitFor(ranks), prometheus.Describe());
    CHECK(prometheus.Values(ranks) == std::vector<std::string>{"3221225474", "3221225475"});
    CHECK(prometheus.Values("ddprun_job_state == 1").size() == 1);
    CHECK(prometheus.Values("ddprun_job_restarts_total{run_id=\"run7\"}") ==
          std::vector<std::string>{"1"});
    for (const std::string& name : EmittedMetrics()) {
      CHECK_MESSAGE(!prometheus.Values(name).empty(), name, prometheus.Describe());
    }
    // No label of ours is one that Prometheus sets itself.
    CHECK(prometheus.Values("{__name__=~\"ddprun_.*\",exported_job!=\"\"}").empty());
    CHECK(prometheus.Values("{__name__=~\"ddprun_.*\",exported_instance!=\"\"}").empty());
    CHECK(node.has_been_asked_for_open_metrics());
  }
}

TEST_CASE("dashboard: each expression is accepted and has values for a job") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  const Node node(true);
  const Prometheus prometheus(node.Url());
  REQUIRE_MESSAGE(prometheus.WaitFor("ddprun_job_up_seconds"), prometheus.Describe());
  for (const std::string& expression : DashboardExpressions()) {
    const std::string answer = prometheus.Ask(expression);
    CHECK_MESSAGE(answer == Contains("\"status\":\"success\""), expression);
    CHECK_MESSAGE(prometheus.WaitFor(expression), expression, "\n", prometheus.Describe());
  }
}

TEST_CASE("dashboard and alerts: every metric that they ask for is one of ours") {
  const std::set<std::string> emitted = EmittedMetrics();
  for (const char* file : {"examples/grafana/ddprun.json", "examples/prometheus/alerts.yml"}) {
    const std::set<std::string> used = MetricsIn(ReadFile(Runfile(file)));
    CHECK(used.size() >= 5);
    for (const std::string& name : used) CHECK_MESSAGE(emitted.count(name) == 1, file, ": ", name);
  }
}

TEST_CASE("alerts: promtool takes the rules, and they fire when they should") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  const testing::TempDir dir;
  const std::string rules = testing::WriteFile(dir.File("alerts.yml"),
                                               ReadFile(Runfile("examples/prometheus/alerts.yml")));
  const auto check = Promtool({"check", "rules", rules});
  CHECK_MESSAGE(check->Wait() == 0, check->Describe());
  const std::string test = testing::WriteFile(
      dir.File("alerts_test.yml"), ReadFile(Runfile("tests/launcher/metrics/alerts_test.yml")));
  const auto run = Promtool({"test", "rules", test});
  CHECK_MESSAGE(run->Wait() == 0, run->Describe());
}

// What stands in the document between ```LANGUAGE and ```.
std::vector<std::string> CodeBlocks(const std::string& document, const std::string& language) {
  std::vector<std::string> blocks;
  const std::string begin = "\n```" + language + "\n";
  for (size_t at = 0; (at = document.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    blocks.push_back(document.substr(at, document.find("\n```", at) + 1 - at));
  }
  return blocks;
}

// The document's scrape configuration `index`, beside the alerts that it names.
std::string ScrapeConfig(size_t index, const testing::TempDir& dir) {
  testing::WriteFile(dir.File("alerts.yml"), ReadFile(Runfile("examples/prometheus/alerts.yml")));
  const auto blocks = CodeBlocks(ReadFile(Runfile("docs/reference/metrics.md")), "yaml");
  REQUIRE(blocks.size() == 2);
  return blocks[index];
}

TEST_CASE(
    "docs/reference/metrics.md: promtool takes the scrape configuration for nodes with known "
    "names") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  const testing::TempDir dir;
  const std::string file = testing::WriteFile(dir.File("prometheus.yml"), ScrapeConfig(0, dir));
  const auto check = Promtool({"check", "config", file});
  CHECK_MESSAGE(check->Wait() == 0, check->Describe());
}

TEST_CASE("docs/reference/metrics.md: of pods those with the annotation are scraped, at its port") {
  if (std::string why = WhyNoPrometheus(); !why.empty()) return SkipTest(why);
  const testing::TempDir dir;
  // The distribution's Prometheus does not know Kubernetes: two pods as it would tell of them.
  std::string pods = "static_configs:\n";
  for (const char* scrape : {"true", "false"}) {
    pods += std::string("      - targets: ['10.0.0.7:80']\n        labels:\n") +
            "          __meta_kubernetes_pod_ip: 10.0.0.7\n" +
            "          __meta_kubernetes_namespace: training\n" +
            "          __meta_kubernetes_pod_name: pod-of-" + scrape + "\n" +
            "          __meta_kubernetes_pod_annotation_prometheus_io_port: '9400'\n" +
            "          __meta_kubernetes_pod_annotation_prometheus_io_scrape: '" + scrape + "'\n";
  }
  const std::string config = ScrapeConfig(1, dir);
  const std::string sd = "kubernetes_sd_configs:\n      - role: pod\n";
  REQUIRE(config == Contains(sd));
  const std::string file =
      testing::WriteFile(dir.File("prometheus.yml"), ReplaceAll(config, sd, pods));
  const auto check = Promtool({"check", "config", file});
  CHECK_MESSAGE(check->Wait() == 0, check->Describe());
  const auto found = Promtool({"check", "service-discovery", "--timeout=1s", file, "ddprun"});
  REQUIRE_MESSAGE(found->Wait() == 0, found->Describe());
  const auto targets = testing::ParseJson("{\"all\":" + found->out() + "}");
  REQUIRE_MESSAGE(targets, found->Describe());
  std::vector<std::string> scraped;
  for (const auto& [unnamed, target] : targets->get_child("all")) {
    const auto labels = target.get_child_optional("labels");
    if (!labels || labels->empty()) continue;
    scraped.push_back(labels->get("pod", "") + " " + labels->get("instance", "") + " " +
                      labels->get("namespace", ""));
  }
  CHECK_MESSAGE(scraped == std::vector<std::string>{"pod-of-true 10.0.0.7:9400 training"},
                found->Describe());
}

}  // namespace
}  // namespace ddprun::launcher
