#include "worker_runtime/round_key.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "launcher/agent/round_key_file.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;

ddprun::rendezvous::Assignment TwoNodes() {
  ddprun::rendezvous::Assignment assignment;
  assignment.node_count = 2;
  assignment.round_key = std::string(16, 'a') + std::string(16, '\0');
  return assignment;
}

TEST_CASE("round key: a worker reads what the launcher wrote, as often as it wants") {
  const auto file = ddprun::launcher::RoundKeyFileOf(TwoNodes(), true);
  REQUIRE_MESSAGE(file.ok(), file.status().ToString());
  for (int times = 0; times < 2; ++times) {
    const auto key = ReadRoundKey(file->get());
    REQUIRE_MESSAGE(key.ok(), key.status().ToString());
    CHECK(*key == TwoNodes().round_key);
  }
  CHECK((fcntl(file->get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("round key: nobody who has the descriptor changes it") {
  const auto file = ddprun::launcher::RoundKeyFileOf(TwoNodes(), true);
  REQUIRE(file.ok());
  CHECK(pwrite(file->get(), "x", 1, 0) < 0);
  CHECK(ftruncate(file->get(), 0) != 0);
  CHECK(ReadRoundKey(file->get()).ok());
}

TEST_CASE("round key: there is none for one node, or where nodes do not know each other") {
  ddprun::rendezvous::Assignment alone = TwoNodes();
  alone.node_count = 1;
  CHECK_FALSE(ddprun::launcher::RoundKeyFileOf(alone, true)->is_open());
  CHECK_FALSE(ddprun::launcher::RoundKeyFileOf(TwoNodes(), false)->is_open());
}

TEST_CASE("round key: nodes that know each other do not talk in the clear for want of it") {
  ddprun::rendezvous::Assignment without = TwoNodes();
  without.round_key.clear();
  const auto file = ddprun::launcher::RoundKeyFileOf(without, true);
  CHECK(absl::IsFailedPrecondition(file.status()));
}

TEST_CASE("round key: a descriptor that was closed, or is something else by now, is named") {
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd open_to_all(memfd_create("other", MFD_CLOEXEC));
  REQUIRE(ftruncate(open_to_all.get(), kRoundKeyBytes) == 0);
  for (const int descriptor : {987654, null.get(), open_to_all.get()}) {
    const auto key = ReadRoundKey(descriptor);
    CHECK(absl::IsFailedPrecondition(key.status()));
    CHECK(key.status().message() == Contains("DDPRUN_ROUND_KEY_FD"));
  }
}

}  // namespace
}  // namespace ddp::internal
