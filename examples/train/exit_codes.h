// The trainer's own exit codes. Like every worker's they are passed on by ddprun; a test checks
// that they mean there what they mean here.
#ifndef DDPRUN_EXAMPLES_TRAIN_EXIT_CODES_H_
#define DDPRUN_EXAMPLES_TRAIN_EXIT_CODES_H_

namespace train {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitMachine = 120;  // files and data of this machine, weights that differ

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_EXIT_CODES_H_
