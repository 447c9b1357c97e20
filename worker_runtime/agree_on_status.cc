#include "worker_runtime/agree_on_status.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace ddp::internal {

absl::Status AgreeOnStatus(Communicator& communicator, const absl::Status& mine) {
  const int64_t code = static_cast<int64_t>(mine.code());
  std::vector<int64_t> codes(static_cast<size_t>(communicator.world_size()));
  absl::Status status = communicator.AllGather(&code, codes.data(), 1, DType::kInt64)->Wait();
  if (!status.ok()) return status;
  const auto bad = std::find_if(codes.begin(), codes.end(), [](int64_t c) { return c != 0; });
  if (bad == codes.end()) return absl::OkStatus();

  std::array<char, 1001> message{};  // all ranks broadcast equally much
  std::string(mine.message()).copy(message.data(), message.size() - 1);
  const int rank = static_cast<int>(bad - codes.begin());
  status = communicator.Broadcast(message.data(), message.size(), DType::kUint8, rank)->Wait();
  if (!status.ok()) return status;
  return absl::Status(static_cast<absl::StatusCode>(*bad), message.data());
}

}  // namespace ddp::internal
