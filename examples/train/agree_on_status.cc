#include "examples/train/agree_on_status.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace train {

absl::Status AgreeOnStatus(ddp::Communicator& communicator, const absl::Status& mine) {
  const int64_t code = static_cast<int64_t>(mine.code());
  std::vector<int64_t> codes(communicator.world_size());
  absl::Status status = communicator.AllGather(&code, codes.data(), 1, ddp::DType::kInt64)->Wait();
  if (!status.ok()) return status;
  const auto bad = std::find_if(codes.begin(), codes.end(), [](int64_t c) { return c != 0; });
  if (bad == codes.end()) return absl::OkStatus();

  const int rank = static_cast<int>(bad - codes.begin());
  std::string message(mine.message());
  message.resize(1024);  // all ranks must broadcast equally much
  status = communicator.Broadcast(message.data(), message.size(), ddp::DType::kUint8, rank)->Wait();
  if (!status.ok()) return status;
  // The ranks end now. None may be gone before all know why: a rank that is still receiving would
  // take that for the reason.
  communicator.Barrier()->Wait().IgnoreError();
  return absl::Status(static_cast<absl::StatusCode>(*bad), message.c_str());
}

}  // namespace train
