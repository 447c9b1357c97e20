// How many descriptors a process has, and may have.
#ifndef DDPRUN_TESTS_SUPPORT_DESCRIPTORS_H_
#define DDPRUN_TESTS_SUPPORT_DESCRIPTORS_H_

#include <cstddef>

namespace ddprun::testing {

// Raises the limit of this process as far as it may without anybody's leave. What it is then.
size_t AllowManyDescriptors();
// Those that a process has open; of the caller itself one more, by which they are counted. 0 where
// it is not ours, or gone.
size_t CountDescriptors(int pid);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_DESCRIPTORS_H_
