// A directory for sockets, whose names must be short: TMPDIR of a test is too long for them.
#ifndef DDPRUN_TESTS_LAUNCHER_CONTROL_SHORT_DIR_H_
#define DDPRUN_TESTS_LAUNCHER_CONTROL_SHORT_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "rendezvous/base/check.h"

namespace ddprun::launcher::testing {

class ShortDir {
 public:
  ShortDir() { DDP_CHECK(mkdtemp(path_) != nullptr); }
  ~ShortDir() { std::filesystem::remove_all(path_); }
  ShortDir(const ShortDir&) = delete;
  ShortDir& operator=(const ShortDir&) = delete;
  std::string path() const { return path_; }
  std::string File(const std::string& name) const { return path() + "/" + name; }

 private:
  char path_[32] = "/tmp/ddprun-test-XXXXXX";
};

}  // namespace ddprun::launcher::testing

#endif  // DDPRUN_TESTS_LAUNCHER_CONTROL_SHORT_DIR_H_
