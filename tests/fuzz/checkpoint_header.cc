// A checkpoint's header, from a file that may be anybody's.
#include <cstdint>
#include <string>

#include "tests/fuzz/promise.h"
#include "worker_runtime/checkpoint_format.h"

namespace ddp::internal {

using ddprun::fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = ddprun::fuzz::TextOf(data, size);
  const auto header = DecodeCheckpointHeader({bytes.data(), bytes.size()});
  if (!header.ok()) {
    Promise(absl::IsDataLoss(header.status()), "what is no header is lost data");
    return 0;
  }
  const std::string again = EncodeCheckpointHeader(header->state, header->tensors);
  Promise(again.substr(kPrefixBytes) == bytes, "a header is one that Encode writes");
  Promise(CheckSameTensors(header->tensors, header->tensors).ok(), "tensors are like themselves");
  return 0;
}

}  // namespace ddp::internal
