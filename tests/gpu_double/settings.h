// What the environment tells the double. Read anew at every use, so that a test can change it.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_SETTINGS_H_
#define DDPRUN_TESTS_GPU_DOUBLE_SETTINGS_H_

#include <optional>
#include <string>

namespace ddprun::gpu_double {

std::string TextSetting(const char* name, const std::string& otherwise);
long NumberSetting(const char* name, long otherwise);

// $DDPRUN_DOUBLE_FAULT as it applies to one rank: "slow=20@1,hang=3,abort_hangs". README.md lists
// the faults. A name that is not one of them ends the process, so that no test injects nothing.
struct Faults {
  bool init_hangs = false;
  bool never_joins = false;
  bool abort_hangs = false;
  bool finalize_hangs = false;
  bool no_memalloc = false;
  bool no_openssl = false;
  bool refuses_key = false;
  bool eager_free = false;
  bool notices_dead_peers = false;
  bool is_blind = false;
  bool is_lenient = false;
  bool rounds_average = false;
  std::optional<long> async_error;   // the number of an operation; the first is 1
  std::optional<long> remote_error;  // likewise
  std::optional<long> hang;          // likewise
  std::optional<long> stays;         // likewise
  std::optional<long> call_hangs;    // the number of a call; the first is 1
  std::optional<long> cuinit;        // what cuInit returns
  long slow_ms = 0;

  // `rank` < 0: for calls that belong to no communicator; faults of one rank are left out.
  static Faults Of(int rank);
};

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_SETTINGS_H_
