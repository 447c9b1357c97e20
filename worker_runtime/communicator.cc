// What communicators of host memory have in common.
#include "ddp/communicator.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddp {
Work::Clock::time_point Work::issued_at() const { return started_at(); }

absl::Status Buffer::Zero(Stream) {
  std::memset(data(), 0, bytes());
  return absl::OkStatus();
}

absl::Status Buffer::Copy(void* to, const void* from, size_t bytes, Stream) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HalfCasts>> Communicator::MakeHalfCasts(DType) {
  return absl::UnimplementedError(absl::StrCat("the backend ", backend(), " casts nothing"));
}

absl::StatusOr<std::unique_ptr<TensorHash>> Communicator::MakeTensorHash() {
  return absl::UnimplementedError(absl::StrCat("the backend ", backend(), " hashes nothing"));
}

}  // namespace ddp
