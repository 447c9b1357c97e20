// A link that is made where OpenSSL is configured to do nothing. A file is a process of its own,
// and OpenSSL reads its configuration once.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"
#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {
namespace {

using ddprun::testing::Contains;

TEST_CASE("link key: where OpenSSL's configuration leaves out what links need, the error says so") {
  const ddprun::testing::TempDir folder;
  const std::string path = folder.File("openssl.cnf");
  ddprun::testing::WriteFile(path,
                             "openssl_conf = all\n[all]\nproviders = some\n"
                             "[some]\nnull = one\n[one]\nactivate = 1\n");
  REQUIRE(setenv("OPENSSL_CONF", path.c_str(), 1) == 0);
  const absl::Status status = LinkKey::Make(std::string(32, 'k')).status();
  CHECK_MESSAGE(absl::IsFailedPrecondition(status), status.ToString());
  CHECK(status.message() == Contains("encrypt the links between nodes"));
  CHECK(status.message() == Contains("OPENSSL_CONF"));
}

}  // namespace
}  // namespace ddp::internal
