// A function run in a process of its own: for what may hang, crash, or leave the process changed.
#ifndef DDPRUN_TESTS_SUPPORT_IN_CHILD_H_
#define DDPRUN_TESTS_SUPPORT_IN_CHILD_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>

namespace ddprun::testing {

// Forks, sets `env` (an empty value removes the variable), and returns what `body` returned there;
// "HUNG" when it took longer than `patience` and was killed, "SIGNAL n" or "EXIT n" when the child
// ended without returning. REQUIRES: the caller has no other thread.
std::string InChild(const std::map<std::string, std::string>& env,
                    const std::function<std::string()>& body,
                    std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_IN_CHILD_H_
