// What communicators of host memory have in common.
#include "ddp/communicator.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddp {
namespace {

class FailedWork final : public Work {
 public:
  explicit FailedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }
  absl::Status WaitOn(Stream) override { return status_; }
  bool IsDone() const override { return true; }
  Clock::time_point started_at() const override { return {}; }
  Clock::time_point ended_at() const override { return {}; }

 private:
  const absl::Status status_;
};

}  // namespace

Work::Clock::time_point Work::issued_at() const { return started_at(); }

absl::Status Buffer::Zero(Stream) {
  std::memset(data(), 0, bytes());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HalfCasts>> Communicator::MakeHalfCasts(DType) {
  return absl::UnimplementedError(absl::StrCat("the backend ", backend(), " casts nothing"));
}

std::unique_ptr<Work> Communicator::SendReceive(const void*, int, void*, int, size_t, DType,
                                                Stream) {
  return std::make_unique<FailedWork>(absl::UnimplementedError(
      absl::StrCat("send-receive: the backend ", backend(), " has none; nccl has")));
}

absl::StatusOr<std::string> Communicator::DumpOperations() {
  return absl::UnimplementedError(
      absl::StrCat("the backend ", backend(), " records no operations; nccl does"));
}

}  // namespace ddp
