#include "tests/launcher/metrics/prometheus.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "rendezvous/base/check.h"
#include "tests/launcher/metrics/http.h"
#include "tests/support/files.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

// Where Debian and Ubuntu have them.
constexpr char kServer[] = "/usr/bin/prometheus";
constexpr char kPromtool[] = "/usr/bin/promtool";

std::string Config(const std::string& url) {
  const size_t host = url.find("://") + 3;
  const size_t path = url.find('/', host);
  DDP_CHECK(host != std::string::npos + 3 && path != std::string::npos);
  return "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n"
         "  - job_name: test\n    scheme: " +
         url.substr(0, host - 3) + "\n    metrics_path: " + url.substr(path) +
         "\n    static_configs:\n      - targets: ['" + url.substr(host, path - host) + "']\n";
}

}  // namespace

std::string WhyNoPrometheus() {
  if (access(kServer, X_OK) == 0 && access(kPromtool, X_OK) == 0) return "";
  return "no Prometheus here; tools/setup --with-prometheus installs it";
}

std::unique_ptr<Subprocess> Promtool(std::vector<std::string> words, const std::string& text) {
  const TempDir dir;
  std::vector<std::string> shell = {"/bin/sh",
                                    "-c",
                                    "in=$1; shift; exec \"$@\" < \"$in\"",
                                    "sh",
                                    WriteFile(dir.File("stdin"), text),
                                    kPromtool};
  shell.insert(shell.end(), words.begin(), words.end());
  auto promtool = std::make_unique<Subprocess>(std::move(shell));
  promtool->Wait();
  return promtool;
}

Prometheus::Prometheus(const std::string& url) {
  const std::string config = WriteFile(dir_.File("prometheus.yml"), Config(url));
  server_ = std::make_unique<Subprocess>(std::vector<std::string>{
      kServer, "--config.file=" + config, "--storage.tsdb.path=" + dir_.File("data"),
      "--web.listen-address=127.0.0.1:0"});
  const std::string said = "msg=\"Listening on\" address=127.0.0.1:";
  DDP_CHECK(server_->WaitForErr(said));
  const std::string log = server_->err();
  port_ = static_cast<uint16_t>(std::atoi(log.c_str() + log.find(said) + said.size()));
  DDP_CHECK(port_ != 0);
}

Prometheus::~Prometheus() {
  if (server_->Wait(std::chrono::milliseconds(0))) return;
  server_->Signal(SIGTERM);
  server_->Wait();
}

std::string Prometheus::Ask(const std::string& expression) const {
  return HttpGet(port_, "/api/v1/query?query=" + UrlEncoded(expression)).value_or("");
}

std::vector<std::string> Prometheus::Values(const std::string& expression) const {
  std::vector<std::string> values;
  const std::optional<Json> answer = ParseJson(Ask(expression));
  if (!answer || answer->get("status", "") != "success") return values;
  for (const auto& [unnamed, series] : answer->get_child("data.result")) {
    const auto pair = series.get_child_optional("value");  // of time and value
    if (pair && pair->size() == 2) values.push_back(pair->back().second.data());
  }
  return values;
}

bool Prometheus::WaitFor(const std::string& expression) const {
  return Eventually([&] { return !Values(expression).empty(); });
}

std::string Prometheus::Describe() const {
  return HttpGet(port_, "/api/v1/targets").value_or("no answer") + server_->Describe();
}

}  // namespace ddprun::testing
