#include "tests/support/run_options.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace ddprun::testing {
namespace {

// Eleven days: what is longer is a typing error, and would overflow where it is converted.
constexpr double kMaxSeconds = 1e6;

bool ReadPositive(const Environment& environment, const char* name, double* value,
                  std::string* error) {
  const std::string text = environment(name);
  if (text.empty()) return true;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  if (*end == '\0' && std::isfinite(*value) && *value > 0) return true;
  *error = std::string(name) + "=\"" + text + "\": not a positive number";
  return false;
}

bool ReadCount(const Environment& environment, const char* name, size_t below, size_t* value,
               std::string* error) {
  const std::string text = environment(name);
  if (text.empty()) return true;
  char* end = nullptr;
  errno = 0;
  const unsigned long number = std::strtoul(text.c_str(), &end, 10);
  *value = number;
  if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && number < below) return true;
  *error = std::string(name) + "=\"" + text + "\": not a number below " + std::to_string(below);
  return false;
}

}  // namespace

bool ReadRunOptions(const Environment& environment, RunOptions* options, std::string* error) {
  *options = {};
  double limit_s = options->file_limit.count();
  double factor = 1;
  if (!ReadPositive(environment, "DDPRUN_TEST_FILE_LIMIT_S", &limit_s, error) ||
      !ReadPositive(environment, "DDPRUN_TEST_TIME_FACTOR", &factor, error) ||
      !ReadCount(environment, "TEST_TOTAL_SHARDS", std::numeric_limits<size_t>::max(),
                 &options->shards, error)) {
    return false;
  }
  if (limit_s * factor > kMaxSeconds) {
    *error = "DDPRUN_TEST_FILE_LIMIT_S times DDPRUN_TEST_TIME_FACTOR: more than 1000000 s";
    return false;
  }
  options->file_limit = std::chrono::duration<double>(limit_s * factor);
  // Bazel says 0 where there are no shards.
  if (options->shards == 0) options->shards = 1;
  if (!ReadCount(environment, "TEST_SHARD_INDEX", options->shards, &options->shard, error)) {
    return false;
  }
  options->is_streaming = environment("DDPRUN_TEST_STREAM") == "1";
  options->shard_status_file = environment("TEST_SHARD_STATUS_FILE");
  options->filter = environment("TESTBRIDGE_TEST_ONLY");
  options->xml_file = environment("XML_OUTPUT_FILE");
  return true;
}

void ForgetRunOptions() {
  for (const char* name :
       {"DDPRUN_TEST_FILE_LIMIT_S", "DDPRUN_TEST_STREAM", "TEST_TOTAL_SHARDS", "TEST_SHARD_INDEX",
        "TEST_SHARD_STATUS_FILE", "TESTBRIDGE_TEST_ONLY", "XML_OUTPUT_FILE"}) {
    unsetenv(name);
  }
}

}  // namespace ddprun::testing
