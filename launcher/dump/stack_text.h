// What the tools that read stacks print, as values, and where a program is, in one phrase. [pure]
#ifndef DDPRUN_LAUNCHER_DUMP_STACK_TEXT_H_
#define DDPRUN_LAUNCHER_DUMP_STACK_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// One function that has not returned. All text is escaped (EscapeControl) and of bounded length.
struct Frame {
  std::string function;  // empty: the tool knows no name
  std::string file;      // of the source, as the tool has it; empty: not known
  int line = 0;          // 0: not known
  friend bool operator==(const Frame&, const Frame&) = default;
};

struct ThreadStack {
  std::string name;           // empty: the tool tells none
  int tid = 0;                // the kernel's; 0: the tool tells none
  std::string state;          // py-spy's: "idle", "active", "active+gil"
  std::vector<Frame> frames;  // the innermost first
  friend bool operator==(const ThreadStack&, const ThreadStack&) = default;
};

struct Stack {
  std::string tool;                  // "py-spy", "eu-stack", "gdb", "PyTorch's worker server"
  std::vector<ThreadStack> threads;  // the main thread first
  friend bool operator==(const Stack&, const Stack&) = default;
};

inline constexpr char kPySpy[] = "py-spy";
inline constexpr char kEuStack[] = "eu-stack";
inline constexpr char kGdb[] = "gdb";
inline constexpr char kWorkerServer[] = "PyTorch's worker server";

// Bounds on what is taken from a tool; what comes after them is left out.
inline constexpr size_t kMaxStackText = size_t{1} << 20;
inline constexpr size_t kMaxThreads = 1024;
inline constexpr size_t kMaxFrames = 256;  // of a thread

// What `tool` (one of the four) printed of process `pid`: `py-spy dump --full-filenames`, `eu-stack
// [-s] [-i]`, gdb's "thread apply all bt", Python's faulthandler. Lines that are none of the tool's
// are passed over; no threads: it told of none. For every text, of whatever size.
Stack ParseStack(absl::string_view tool, absl::string_view text, int pid);

// "in all_reduce (torch/distributed/distributed_c10d.py:2806), called from train_step
// (train.py:41)": where the main thread is, for a person. Frames that only wait (the C library's,
// the interpreter's, threading's, those inside ddp) are passed over, then a library's function and
// the user's own line are named. Empty: there is no frame.
std::string WhereText(const Stack& stack);

// Whether the main thread waits: for the kernel, a lock, another process. False: not known, too.
bool IsWaiting(const Stack& stack);

// "all_reduce (torch/distributed/distributed_c10d.py:2806)", without a C++ function's result and
// parameters.
std::string FrameText(const Frame& frame);

// All threads, for a file: one line a frame, the source files as the tool has them.
std::string StackText(const Stack& stack);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_STACK_TEXT_H_
