// What the server in a PyTorch program answers: its flight recorder as JSON.
#include "launcher/status/torch_flights.h"

#include <cstdint>
#include <string>

#include "launcher/status/snapshot_json.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string json(fuzz::TextOf(data, size));
  NodeView node;
  node.ranks.emplace_back().groups = GroupsOfFlights(json, /*rank=*/1, /*world_size=*/4,
                                                     /*unix_now_ns=*/1'700'000'000'000'000'000);
  for (const GroupView& group : node.ranks[0].groups) {
    Promise(0 <= group.rank && group.rank < group.size, "a rank has a place in its group");
    Promise(group.done <= group.called, "nothing is done that was not called");
    Promise(group.waiting_s >= 0 && group.quiet_s >= 0, "no age is negative");
    Promise(fuzz::IsPlain(group.name, false) && fuzz::IsPlain(group.op, false), "texts are plain",
            group.name + " " + group.op);
  }
  const std::string told = RenderNodeJson(node);
  Promise(ParseNodeJson(told).ok(), "other nodes take what it makes", told);
  return 0;
}

}  // namespace ddprun::launcher
