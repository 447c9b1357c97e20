#include "launcher/test_gates.h"

namespace ddprun::launcher {

void HoldFileWorkForTest(const std::string&) {}

bool IsSpawnHeldForTest() { return false; }

std::string SysRootForTest() { return "/sys"; }

bool IsAnyDiskSharedForTest() { return false; }

bool HasFaultForTest(const char*) { return false; }

}  // namespace ddprun::launcher
