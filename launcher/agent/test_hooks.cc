#include "launcher/agent/test_hooks.h"

#include <chrono>
#include <cstdlib>

namespace ddprun::launcher {

Duration SpawnDelayForTest() {
  const char* text = std::getenv("DDPRUN_TEST_SPAWN_DELAY_MS");
  return text == nullptr ? Duration(0) : std::chrono::milliseconds(std::atoi(text));
}

std::string SysRootForTest() {
  const char* folder = std::getenv("DDPRUN_TEST_SYSFS");
  return folder == nullptr ? "/sys" : folder;
}

}  // namespace ddprun::launcher
