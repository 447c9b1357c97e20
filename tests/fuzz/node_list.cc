// Slurm's notation for nodes.
#include "launcher/cli/node_list.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto names = ExpandNodeList(std::string(fuzz::TextOf(data, size)));
  if (!names.ok()) {
    Promise(absl::IsInvalidArgument(names.status()), "what is no list is an invalid argument");
    return 0;
  }
  Promise(!names->empty() && names->size() <= 65536, "a list has 1 to 65,536 names");
  const std::string longest =
      *std::max_element(names->begin(), names->end(),
                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  Promise(longest.find_first_of("[],") == std::string::npos, "a name is expanded", longest);
  Promise(longest.size() <= size, "no name is longer than the list", longest);
  if (names->size() > 1000) return 0;
  const auto again = ExpandNodeList(absl::StrJoin(*names, ","));
  Promise(again.ok() && *again == *names, "names are a list of themselves");
  return 0;
}

}  // namespace ddprun::launcher
