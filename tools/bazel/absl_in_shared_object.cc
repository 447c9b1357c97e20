// The distribution's archives of absl are compiled for programs: two of their files address
// variables of a thread in a way (R_X86_64_TPOFF32) that the linker refuses in a shared object.
// Both are defined here instead, compiled with -fPIC, so that the linker takes neither from the
// archive. What they do is small: the thread's id, and whether to sample a Cord, which is never.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <thread>

#include "absl/base/internal/sysinfo.h"
#include "absl/strings/internal/cordz_functions.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

namespace base_internal {

double NominalCPUFrequency() { return 1.0; }  // absl's own answer where it does not know
int NumCPUs() { return static_cast<int>(std::thread::hardware_concurrency()); }
pid_t GetTID() { return static_cast<pid_t>(syscall(SYS_gettid)); }
pid_t GetCachedTID() { return GetTID(); }

}  // namespace base_internal

namespace cord_internal {

namespace {
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
}  // namespace

ABSL_CONST_INIT thread_local int64_t cordz_next_sample = kNever;

int32_t get_cordz_mean_interval() { return 0; }
void set_cordz_mean_interval(int32_t) {}
void cordz_set_next_sample_for_testing(int64_t next_sample) { cordz_next_sample = next_sample; }
bool cordz_should_profile_slow() {
  cordz_next_sample = kNever;
  return false;
}

}  // namespace cord_internal

ABSL_NAMESPACE_END
}  // namespace absl
