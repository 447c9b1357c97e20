// What a kernel lacks, for a test that cannot have an older one.
#ifndef DDPRUN_TESTS_SUPPORT_SECCOMP_H_
#define DDPRUN_TESTS_SUPPORT_SECCOMP_H_

#include <cstdint>
#include <vector>

namespace ddprun::testing {

struct SyscallArgument {
  uint32_t index;
  uint32_t value;
};

// From now on the system call fails with `error` in this process and its children, if all of
// `arguments` are as given. False: seccomp filters are not available here.
bool FailSyscall(uint32_t number, uint32_t error,
                 const std::vector<SyscallArgument>& arguments = {});

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_SECCOMP_H_
