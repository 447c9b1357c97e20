#include "tests/support/files.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();  // unlike an iterator it throws nothing when a process ends meanwhile
  return text.str();
}

std::string WriteFile(const std::string& path, const std::string& bytes, mode_t mode) {
  std::ofstream file(path, std::ios::binary);
  file << bytes << std::flush;
  DDP_CHECK(file.good());
  file.close();
  DDP_CHECK(chmod(path.c_str(), mode) == 0);
  return path;
}

}  // namespace ddprun::testing
