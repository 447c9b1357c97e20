// What the environment asks of a test program.
#ifndef DDPRUN_TESTS_SUPPORT_RUN_OPTIONS_H_
#define DDPRUN_TESTS_SUPPORT_RUN_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace ddprun::testing {

struct RunOptions {
  // DDPRUN_TEST_FILE_LIMIT_S times DDPRUN_TEST_TIME_FACTOR.
  std::chrono::duration<double> file_limit{120};
  // DDPRUN_TEST_STREAM=1: what a file prints is shown at once, not when it has ended.
  bool is_streaming = false;
  // Bazel's; files are dealt to the shards in turn.
  size_t shards = 1;
  size_t shard = 0;
  std::string shard_status_file;
  // Bazel's --test_filter: doctest's --test-case.
  std::string filter;
  std::string xml_file;
};

// The value of an environment variable; empty where it is not set.
using Environment = std::function<std::string(const char*)>;

// False where a value cannot be meant; `error` then says which and why.
bool ReadRunOptions(const Environment& environment, RunOptions* options, std::string* error);

// Removes what is meant for this program only: the tests may run programs that read it as well.
void ForgetRunOptions();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_RUN_OPTIONS_H_
