// What `ddprun check` prints for people. [pure]
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_TEXT_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_TEXT_H_

#include <string>

#include "launcher/check/check_verdict.h"

namespace ddprun::launcher {

// A line for each unit, the worst first, and the sentence.
std::string CheckText(const CheckFacts& facts, const CheckVerdict& verdict);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_TEXT_H_
