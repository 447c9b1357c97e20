#include "tests/support/temp_dir.h"

#include <cstdlib>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

TempDir::TempDir() {
  const char* base = std::getenv("TEST_TMPDIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/ddprun-test-XXXXXX";
  DDP_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ddprun::testing
