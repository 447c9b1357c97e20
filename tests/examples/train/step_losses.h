// What the trainer's --step_log holds.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_STEP_LOSSES_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_STEP_LOSSES_H_

#include <string>
#include <vector>

namespace ddprun::testing {

// The loss of each step.
std::vector<double> StepLosses(const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_STEP_LOSSES_H_
