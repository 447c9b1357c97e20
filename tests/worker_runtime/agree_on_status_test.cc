#include "worker_runtime/agree_on_status.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/thread_group.h"

namespace ddp::internal {
namespace {

std::vector<absl::Status> Agreed(const std::vector<absl::Status>& statuses) {
  std::vector<absl::Status> agreed(statuses.size());
  ddprun::testing::ThreadGroup group(static_cast<int>(statuses.size()));
  group.Run([&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    agreed[rank] = AgreeOnStatus(communicator, statuses[rank]);
  });
  return agreed;
}

TEST_CASE("agree on status: all well is well") {
  for (const absl::Status& status : Agreed({{}, {}, {}})) CHECK(status.ok());
}

TEST_CASE("agree on status: all get the first that is not, word for word") {
  const absl::Status first = absl::NotFoundError("no \"x\"\nhere");
  for (const absl::Status& status : Agreed({{}, first, absl::InternalError("later")})) {
    CHECK(status == first);
  }
}

TEST_CASE("agree on status: a long message is cut, an empty one stays empty") {
  for (const absl::Status& status :
       Agreed({absl::UnknownError(std::string(5000, 'x')), absl::OkStatus()})) {
    CHECK(status == absl::UnknownError(std::string(1000, 'x')));
  }
  for (const absl::Status& status : Agreed({absl::OkStatus(), absl::UnknownError("")})) {
    CHECK(status == absl::UnknownError(""));
  }
}

}  // namespace
}  // namespace ddp::internal
