// What is counted of an HTTP/2 connection before gRPC sees it.
#include "rendezvous/wire/frame_limits.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const bool has_joined : {false, true}) {
    std::optional<bool> first;
    for (const auto& pieces : fuzz::Divisions(fuzz::TextOf(data, size))) {
      FrameLimits limits;
      bool is_taken = true;
      for (const std::string_view piece : pieces) {
        is_taken = is_taken && limits.Takes(TimePoint{}, has_joined, piece);
      }
      Promise(first.value_or(is_taken) == is_taken, "what is taken depends on the bytes alone");
      first = is_taken;
    }
  }
  return 0;
}

}  // namespace ddprun::rendezvous
