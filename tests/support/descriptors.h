// How many descriptors this process may have.
#ifndef DDPRUN_TESTS_SUPPORT_DESCRIPTORS_H_
#define DDPRUN_TESTS_SUPPORT_DESCRIPTORS_H_

#include <cstddef>

namespace ddprun::testing {

// Raises the limit of this process as far as it may without anybody's leave. What it is then.
size_t AllowManyDescriptors();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_DESCRIPTORS_H_
