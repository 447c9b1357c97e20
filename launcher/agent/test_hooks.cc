#include "launcher/agent/test_hooks.h"

#include <fcntl.h>

#include <chrono>
#include <cstdlib>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

Duration SpawnDelayForTest() {
  const char* text = std::getenv("DDPRUN_TEST_SPAWN_DELAY_MS");
  return text == nullptr ? Duration(0) : std::chrono::milliseconds(std::atoi(text));
}

void HoldFileWorkForTest(const std::string& name) {
  static const char* const text = std::getenv("DDPRUN_TEST_FILE_GATE");
  if (text == nullptr) return;
  const std::string gate = text;
  if (gate.compare(0, name.size() + 1, name + ":") != 0) return;
  UniqueFd(open(gate.c_str() + name.size() + 1, O_RDONLY | O_CLOEXEC));
}

std::string SysRootForTest() {
  const char* folder = std::getenv("DDPRUN_TEST_SYSFS");
  return folder == nullptr ? "/sys" : folder;
}

}  // namespace ddprun::launcher
