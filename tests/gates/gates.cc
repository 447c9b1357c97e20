// What ddprun_gated answers in the place of launcher/test_gates.cc.
#include "tests/gates/gates.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/test_gates.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

void HoldFileWorkForTest(const std::string& name) {
  static const char* const text = std::getenv(testing::kFileGate);
  if (text == nullptr) return;
  const std::string gate = text;
  if (gate.compare(0, name.size() + 1, name + ":") != 0) return;
  UniqueFd(open(gate.c_str() + name.size() + 1, O_RDONLY | O_CLOEXEC));
}

bool IsSpawnHeldForTest() {
  const char* const file = std::getenv(testing::kSpawnGate);
  return file != nullptr && access(file, F_OK) != 0;
}

std::string SysRootForTest() {
  const char* const folder = std::getenv(testing::kSysRoot);
  return folder == nullptr ? "/sys" : folder;
}

bool IsAnyDiskSharedForTest() { return std::getenv(testing::kSharedDisk) != nullptr; }

bool HasFaultForTest(const char* fault) {
  const char* const text = std::getenv(testing::kCheckFault);
  return text != nullptr && std::string_view(text) == fault;
}

}  // namespace ddprun::launcher
