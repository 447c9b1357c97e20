// How a test that cannot run here says so.
#ifndef DDPRUN_TESTS_SUPPORT_SKIP_H_
#define DDPRUN_TESTS_SUPPORT_SKIP_H_

#include <optional>
#include <string>

namespace ddprun::testing {

// Prints "SKIPPED: <why>" on a line of its own, which tools/test counts as a skipped case. Further
// calls of the same case print "SKIPPED also: <why>", for a case counts once.
// Use as `return SkipTest("why");`, the last thing a case does.
void SkipTest(const std::string& why);

// Why the case that ends now was skipped, if it was. The test program's main calls it once a case.
std::optional<std::string> TakeSkipReason();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_SKIP_H_
