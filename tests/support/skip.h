// How a test that cannot run here says so.
#ifndef DDPRUN_TESTS_SUPPORT_SKIP_H_
#define DDPRUN_TESTS_SUPPORT_SKIP_H_

#include <string>

namespace ddprun::testing {

// Prints "SKIPPED: <why>" on a line of its own, which tools/test counts as a skipped case.
// Use as `return SkipTest("why");`, the last thing a case does.
void SkipTest(const std::string& why);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_SKIP_H_
