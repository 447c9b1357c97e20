// What `ddprun check --json` prints, for programs.
#ifndef DDPRUN_LAUNCHER_CHECK_CHECK_JSON_H_
#define DDPRUN_LAUNCHER_CHECK_CHECK_JSON_H_

#include <string>

#include "launcher/check/check_verdict.h"

namespace ddprun::launcher {

// One object on one line.
std::string CheckJson(const CheckFacts& facts, const CheckVerdict& verdict);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CHECK_CHECK_JSON_H_
