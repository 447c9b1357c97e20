// The command that a user runs: all rows, one after the other.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RUN_CHECK_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RUN_CHECK_H_

#include <string>
#include <vector>

namespace ddprun::gpu_check {

// Exit code: 0, also where rows were not run or missed a target; 1 when one failed; 2 wrong usage;
// 120 when this machine has no GPU to check, or its disk cannot be written to.
int RunCheck(const std::vector<std::string>& arguments);

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RUN_CHECK_H_
