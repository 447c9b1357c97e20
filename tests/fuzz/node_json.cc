// What another node, or a stranger at the endpoint, says of a node.
#include <cstdint>
#include <string>

#include "launcher/status/snapshot_json.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::StatusOr<NodeView> node = ParseNodeJson(fuzz::TextOf(data, size));
  if (!node.ok()) {
    const std::string why(node.status().message());
    Promise(fuzz::IsPlain(why, false), "an error is one plain line", why);
    return 0;
  }
  const std::string told = RenderNodeJson(*node);
  Promise(told.size() <= kMaxNodeJsonBytes, "a node's JSON is bounded");
  const absl::StatusOr<NodeView> heard = ParseNodeJson(told);
  Promise(heard.ok(), "what was heard can be told", heard.status().ToString() + told);
  Promise(RenderNodeJson(*heard) == told, "a node is heard as it was told", told);
  return 0;
}

}  // namespace ddprun::launcher
