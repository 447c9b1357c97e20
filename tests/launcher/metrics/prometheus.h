// A real Prometheus that scrapes what a test serves.
#ifndef DDPRUN_TESTS_LAUNCHER_METRICS_PROMETHEUS_H_
#define DDPRUN_TESTS_LAUNCHER_METRICS_PROMETHEUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// "": Prometheus and promtool are installed.
std::string WhyNoPrometheus();

// `promtool WORD...`, ended, with this text at its stdin.
std::unique_ptr<Subprocess> Promtool(std::vector<std::string> words, const std::string& text = "");

// The server, on loopback and a port of its own choice, with a scrape a second of the one URL.
class Prometheus {
 public:
  // "http://127.0.0.1:9400/metrics". Waits until the server listens; a failed start ends the test.
  explicit Prometheus(const std::string& url);
  // Ends it and waits for its end.
  ~Prometheus();
  Prometheus(const Prometheus&) = delete;
  Prometheus& operator=(const Prometheus&) = delete;

  // The answer to a query of /api/v1/query, or "" where there was none.
  std::string Ask(const std::string& expression) const;
  // The values of the expression's series, in their order; empty as well where it is refused.
  std::vector<std::string> Values(const std::string& expression) const;
  // Waits until the expression has a value; false after kPatience.
  bool WaitFor(const std::string& expression) const;
  // What the server says of its scrapes, for a failed check's message.
  std::string Describe() const;

 private:
  TempDir dir_;
  std::unique_ptr<Subprocess> server_;
  uint16_t port_ = 0;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_METRICS_PROMETHEUS_H_
