// What ranks leave in the store for each other when a group forms, from what runs as a rank.
#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/fuzz/promise.h"
#include "worker_runtime/comm/messages/message_peers.h"
#include "worker_runtime/comm/plan.h"

namespace ddp::internal {

using ddprun::fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kWorldSize = 3;
  const std::string text(ddprun::fuzz::TextOf(data, size));
  if (const auto capabilities = DecodeCapabilities(text); capabilities.ok()) {
    const auto again = DecodeCapabilities(Encode(*capabilities));
    Promise(again.ok() && *again == *capabilities, "capabilities are read as they were written");
    Capabilities other;
    if (const auto plan = MakePlan({*capabilities, *capabilities, other}); plan.ok()) {
      Promise(DecodePlan(Encode(*plan), kWorldSize).ok(), "a plan is read by all", Encode(*plan));
    }
  }
  if (const auto plan = DecodePlan(text, kWorldSize); plan.ok()) {
    const auto again = DecodePlan(Encode(*plan), kWorldSize);
    Promise(again.ok() && *again == *plan, "a plan is read as it was written");
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const Place place = PlaceOf(*plan, rank);
      Promise(std::count(place.ranks.begin(), place.ranks.end(), rank) == 1 && place.lanes >= 1,
              "every rank has a place in a plan");
    }
  }
  if (const auto peers = DecodeMessagePeers(text, kWorldSize); peers.ok()) {
    const auto again = DecodeMessagePeers(Encode(*peers), kWorldSize);
    Promise(again.ok() && *again == *peers, "peers are read as they were written");
  }
  return 0;
}

}  // namespace ddp::internal
