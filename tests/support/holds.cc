#include "tests/support/holds.h"

#include <doctest/doctest.h>

namespace ddprun::testing {

bool Holds(const std::string& text, const std::string& part) {
  const bool holds = text.find(part) != std::string::npos;
  CHECK_MESSAGE(holds, "wanted: ", part, "\nin: ", text);
  return holds;
}

}  // namespace ddprun::testing
