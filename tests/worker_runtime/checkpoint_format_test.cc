#include "worker_runtime/checkpoint_format.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::internal {
namespace {

// A header without tensors, with these extras.
std::string HeaderWith(const std::vector<std::string>& keys) {
  ByteWriter writer;
  for (int i = 0; i < 3; ++i) writer.Number(int64_t{0});
  writer.Number(static_cast<uint32_t>(keys.size()));
  for (const std::string& key : keys) {
    writer.String(key);
    writer.String("value");
  }
  writer.Number(uint32_t{0});
  return writer.Take();
}

TEST_CASE("checkpoint format: extras are those of a map, each once and in order") {
  CHECK(DecodeCheckpointHeader(HeaderWith({"a", "b"})).ok());
  CHECK(absl::IsDataLoss(DecodeCheckpointHeader(HeaderWith({"a", "a"})).status()));
  CHECK(absl::IsDataLoss(DecodeCheckpointHeader(HeaderWith({"b", "a"})).status()));
}

}  // namespace
}  // namespace ddp::internal
