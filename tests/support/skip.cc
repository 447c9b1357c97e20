#include "tests/support/skip.h"

#include <cstdio>
#include <utility>

namespace ddprun::testing {
namespace {

std::optional<std::string>& Reason() {
  static std::optional<std::string> reason;
  return reason;
}

}  // namespace

void SkipTest(const std::string& why) {
  std::optional<std::string>& reason = Reason();
  std::printf("SKIPPED%s: %s\n", reason ? " also" : "", why.c_str());
  std::fflush(stdout);
  reason = reason ? *reason + "; " + why : why;
}

std::optional<std::string> TakeSkipReason() { return std::exchange(Reason(), std::nullopt); }

}  // namespace ddprun::testing
