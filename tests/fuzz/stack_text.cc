// What py-spy, eu-stack, gdb and PyTorch's server print of a program, which chooses its names.
#include <cstdint>
#include <string>

#include "launcher/dump/roll_call.h"
#include "launcher/dump/stack_text.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::TextOf(data, size);
  for (const char* tool : {kPySpy, kEuStack, kGdb, kWorkerServer}) {
    const Stack stack = ParseStack(tool, {text.data(), text.size()}, 42);
    Promise(stack.threads.size() <= kMaxThreads, "threads are bounded");
    for (const ThreadStack& thread : stack.threads) {
      Promise(thread.frames.size() <= kMaxFrames, "frames are bounded");
      for (const Frame& frame : thread.frames) {
        Promise(frame.line >= 0, "no line is negative");
        Promise(fuzz::IsPlain(FrameText(frame), false), "a frame is one plain line",
                FrameText(frame));
      }
    }
    Promise(fuzz::IsPlain(WhereText(stack), false), "a place is one plain line", WhereText(stack));
    Promise(fuzz::IsPlain(StackText(stack), true), "a stack is plain lines", StackText(stack));
    const RankStack rank = MakeRankStack(1, stack);
    Promise(rank.is_waiting == IsWaiting(stack), "a rank waits where its stack does");
  }
  return 0;
}

}  // namespace ddprun::launcher
