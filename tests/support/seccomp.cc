#include "tests/support/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>

namespace ddprun::testing {

bool FailSyscall(uint32_t number, uint32_t error, const std::vector<SyscallArgument>& arguments) {
  std::vector<sock_filter> filter;
  const auto require = [&](size_t offset, uint32_t value, size_t left) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
    // Else to the last line: behind what is left, of two lines each, and the error.
    const auto otherwise = static_cast<uint8_t>(2 * left + 1);
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise));
  };
  size_t left = arguments.size();
  require(offsetof(seccomp_data, nr), number, left);
  for (const SyscallArgument& argument : arguments) {
    require(offsetof(seccomp_data, args) + argument.index * sizeof(uint64_t), argument.value,
            --left);
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace ddprun::testing
