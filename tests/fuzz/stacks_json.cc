// What other nodes tell of their ranks' stacks.
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/control/stacks.h"
#include "rendezvous/core/types.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<RankStack> stacks = StacksFromJson(std::string(fuzz::TextOf(data, size)));
  const std::string told = StacksToJson(stacks);
  Promise(told.size() <= rendezvous::kMaxAnswerBytes, "what is told fits into an answer");
  const bool is_cut = told.find("[cut]") != std::string::npos || (told == "[]" && !stacks.empty());
  Promise(is_cut || StacksFromJson(told) == stacks, "stacks are heard as they were told", told);
  for (const RankStack& stack : stacks) {
    Promise(0 <= stack.rank && stack.rank <= 1 << 24, "a rank is one");
    Promise(fuzz::IsPlain(stack.where, false) && fuzz::IsPlain(stack.unknown_why, false),
            "where a rank is, is one plain line", stack.where + stack.unknown_why);
    Promise(fuzz::IsPlain(stack.stack, true), "a stack is plain lines", stack.stack);
  }
  return 0;
}

}  // namespace ddprun::launcher
