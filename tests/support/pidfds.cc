#include "tests/support/pidfds.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace ddprun::testing {

std::optional<int> Pidfds(pid_t holder, pid_t process) {
  const std::string folder = "/proc/" + std::to_string(holder) + "/fdinfo";
  const std::string wanted = "Pid:\t" + std::to_string(process);
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error);
  int descriptors = 0, found = 0;
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    ++descriptors;
    std::ifstream lines(file->path());  // it may be closed meanwhile
    for (std::string line; std::getline(lines, line);) found += line == wanted ? 1 : 0;
  }
  // One that nobody has waited for yet is there, with no descriptor.
  return descriptors == 0 ? std::nullopt : std::optional(found);
}

}  // namespace ddprun::testing
