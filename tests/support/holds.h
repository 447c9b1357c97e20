// The check of most texts: it has what it must.
#ifndef DDPRUN_TESTS_SUPPORT_HOLDS_H_
#define DDPRUN_TESTS_SUPPORT_HOLDS_H_

#include <string>

namespace ddprun::testing {

// Checks that `text` holds `part`, with a message that shows both. Whether it does.
bool Holds(const std::string& text, const std::string& part);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_HOLDS_H_
