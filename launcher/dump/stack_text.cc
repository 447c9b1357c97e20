#include "launcher/dump/stack_text.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

constexpr size_t kMaxFunction = 512;
constexpr size_t kMaxFile = 1024;

std::string Clean(string_view text, size_t limit) {
  const std::string_view whole(text.data(), text.size());
  return EscapeControl(whole.substr(0, CharacterStart(whole, limit)));
}

int Number(string_view digits) {
  int value = 0;
  return absl::SimpleAtoi(digits, &value) && value > 0 ? value : 0;
}

Frame MakeFrame(string_view function, string_view file, int line) {
  return {Clean(absl::StripAsciiWhitespace(function), kMaxFunction),
          Clean(absl::StripAsciiWhitespace(file), kMaxFile), line};
}

// Takes the digits at the beginning of `text`.
int TakeNumber(string_view& text) {
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
  const int number = Number(text.substr(0, end));
  text.remove_prefix(end);
  return number;
}

// "a.py:12" to its halves; no number at the end: all is the file.
std::pair<string_view, int> FileAndLine(string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == string_view::npos) return {text, 0};
  const int line = Number(text.substr(colon + 1));
  return line == 0 ? std::pair(text, 0) : std::pair(text.substr(0, colon), line);
}

// Adds what a tool prints line by line, within the bounds.
class Builder {
 public:
  explicit Builder(Stack& stack) : stack_(stack) {}

  void BeginThread(ThreadStack thread) {
    is_open_ = stack_.threads.size() < kMaxThreads;
    if (is_open_) stack_.threads.push_back(std::move(thread));
  }
  void Add(Frame frame) {
    if (is_open_ && frames().size() < kMaxFrames) frames().push_back(std::move(frame));
  }
  // Of the frame that was added last, where that stands in a line of its own.
  void SetSource(string_view file, int line) {
    if (!is_open_ || frames().empty() || !frames().back().file.empty()) return;
    frames().back().file = Clean(file, kMaxFile);
    frames().back().line = line;
  }
  bool is_open() const { return is_open_; }

 private:
  std::vector<Frame>& frames() { return stack_.threads.back().frames; }

  Stack& stack_;
  bool is_open_ = false;
};

// Thread 15924 (active+gil): "load er"
//     helper (/tmp/t.py:4)
void AddPySpyLine(string_view line, Builder& builder) {
  if (absl::ConsumePrefix(&line, "Thread ")) {
    ThreadStack thread;
    thread.tid = absl::StartsWith(line, "0x") ? 0 : TakeNumber(line);
    const size_t open = line.find('(');
    const size_t close = line.find(')', open == string_view::npos ? 0 : open);
    if (open != string_view::npos && close != string_view::npos) {
      thread.state = Clean(line.substr(open + 1, close - open - 1), kMaxFunction);
    }
    const size_t quote = line.find('"');
    if (quote != string_view::npos) {
      thread.name = Clean(absl::StripSuffix(line.substr(quote + 1), "\""), kMaxFunction);
    }
    builder.BeginThread(std::move(thread));
    return;
  }
  // Deeper lines are variables, which we never ask for.
  if (!absl::ConsumePrefix(&line, "    ") || absl::StartsWith(line, " ")) return;
  // A file's name may hold " (", a C++ function's as well; a Python function's does not.
  size_t open = line.find(" (");
  if (open == string_view::npos || !absl::EndsWith(line, ")")) return;
  if (line.substr(0, open).find_first_of(":<,&*") != string_view::npos &&
      !absl::StartsWith(line, "<")) {
    open = line.rfind(" (");
  }
  const auto [file, number] = FileAndLine(line.substr(open + 2, line.size() - open - 3));
  builder.Add(MakeFrame(line.substr(0, open), file, number));
}

// "#12 0x00007f7f696f0545 " or "#0  0x0000 in " before a frame.
bool TakeFrameNumber(string_view& line) {
  if (!absl::ConsumePrefix(&line, "#")) return false;
  TakeNumber(line);
  line = absl::StripLeadingAsciiWhitespace(line);
  if (absl::StartsWith(line, "0x")) {
    const size_t end = line.find(' ');
    line = end == string_view::npos ? string_view() : line.substr(end + 1);
    absl::ConsumePrefix(&line, "in ");
  }
  return true;
}

// TID 15879:
// #0  0x00007f7f696f0545 clock_nanosleep@GLIBC_2.2.5
//     ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48:7
void AddEuStackLine(string_view line, Builder& builder) {
  if (absl::ConsumePrefix(&line, "TID ")) {
    ThreadStack thread;
    thread.tid = TakeNumber(line);
    builder.BeginThread(std::move(thread));
  } else if (TakeFrameNumber(line)) {
    // Of a versioned symbol the name; "operator@" does not exist.
    builder.Add(MakeFrame(line.substr(0, line.find('@')), "", 0));
  } else if (absl::ConsumePrefix(&line, "    ")) {
    const auto [rest, last] = FileAndLine(line);
    const auto [file, before] = FileAndLine(rest);  // the line stands before the column
    builder.SetSource(before != 0 ? file : rest, before != 0 ? before : last);
  }
}

// "train_step (b=...)" without its arguments: the bracket that the last one closes.
string_view WithoutArguments(string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  if (!absl::EndsWith(text, ")")) return text;
  int depth = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) {
      return absl::StripTrailingAsciiWhitespace(text.substr(0, i));
    }
  }
  return text;
}

// Thread 1 (Thread 0x7f7f6961e740 (LWP 15879) "w"):
// #2  0x0000558a42739198 in train_step (secret=...) at w.c:6
void AddGdbLine(string_view line, Builder& builder) {
  if (absl::StartsWith(line, "Thread ")) {
    ThreadStack thread;
    const size_t lwp = line.find("LWP ");
    if (lwp != string_view::npos) {
      string_view number = line.substr(lwp + 4);
      thread.tid = TakeNumber(number);
    }
    const size_t quote = line.find('"');
    const size_t end = line.rfind('"');
    if (quote < end) thread.name = Clean(line.substr(quote + 1, end - quote - 1), kMaxFunction);
    builder.BeginThread(std::move(thread));
    return;
  }
  if (!TakeFrameNumber(line)) return;
  string_view file;
  int number = 0;
  const size_t at = line.rfind(" at ");
  if (at != string_view::npos) {
    std::tie(file, number) = FileAndLine(line.substr(at + 4));
    if (number != 0) line = line.substr(0, at);
  }
  if (number == 0) {
    file = "";
    const size_t from = line.rfind(") from ");
    if (from != string_view::npos) line = line.substr(0, from + 1);
  }
  const string_view function = WithoutArguments(line);
  builder.Add(MakeFrame(function == "??" ? "" : function, file, number));
}

// Thread 0x00007f538d864b80 (most recent call first):
//   File "/tmp/ws.py", line 4 in train_step
void AddFaulthandlerLine(string_view line, Builder& builder) {
  if (absl::StrContains(line, "hread 0x") && absl::StrContains(line, "most recent call first")) {
    builder.BeginThread({});
    return;
  }
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "File \"")) return;
  const size_t end = line.rfind("\", line ");
  if (end == string_view::npos) return;
  string_view rest = line.substr(end + 8);
  const int number = TakeNumber(rest);
  absl::ConsumePrefix(&rest, " in ");
  builder.Add(MakeFrame(rest, line.substr(0, end), number));
}

using AddLine = void (*)(string_view line, Builder& builder);

AddLine ReaderOf(string_view tool) {
  if (tool == kPySpy) return AddPySpyLine;
  if (tool == kEuStack) return AddEuStackLine;
  if (tool == kGdb) return AddGdbLine;
  return AddFaulthandlerLine;
}

// faulthandler begins with the newest thread and tells no number that the kernel knows.
void PutMainThreadFirst(Stack& stack, int pid) {
  auto main = std::find_if(stack.threads.begin(), stack.threads.end(),
                           [&](const ThreadStack& one) { return one.tid == pid && pid != 0; });
  if (main == stack.threads.end() && stack.tool == kPySpy) {
    main = std::find_if(stack.threads.begin(), stack.threads.end(),
                        [](const ThreadStack& one) { return one.name == "MainThread"; });
  }
  if (main == stack.threads.end() && stack.tool == kWorkerServer) main = stack.threads.end() - 1;
  if (main != stack.threads.end()) {
    std::rotate(stack.threads.begin(), main, main + 1);
  } else if (stack.tool == kEuStack || stack.tool == kGdb) {
    // Nobody is to take another thread for it.
    ThreadStack unknown;
    unknown.tid = pid;
    stack.threads.insert(stack.threads.begin(), std::move(unknown));
  }
}

}  // namespace

Stack ParseStack(string_view tool, string_view text, int pid) {
  Stack stack;
  stack.tool = std::string(tool);
  Builder builder(stack);
  const AddLine add_line = ReaderOf(tool);
  text = text.substr(0, kMaxStackText);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    add_line(absl::StripTrailingAsciiWhitespace(text.substr(0, end)), builder);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  // Threads of which the tool could say nothing, the one that answers for the worker's server among
  // them.
  std::erase_if(stack.threads, [](const ThreadStack& one) { return one.frames.empty(); });
  if (!stack.threads.empty()) PutMainThreadFirst(stack, pid);
  return stack;
}

std::string StackText(const Stack& stack) {
  std::string text;
  for (size_t i = 0; i < stack.threads.size(); ++i) {
    const ThreadStack& thread = stack.threads[i];
    absl::StrAppend(&text, i == 0 ? "main thread" : "\nthread");
    if (thread.tid != 0) absl::StrAppend(&text, " ", thread.tid);
    if (!thread.name.empty()) absl::StrAppend(&text, " \"", thread.name, "\"");
    if (!thread.state.empty()) absl::StrAppend(&text, " (", thread.state, ")");
    absl::StrAppend(&text, "\n");
    for (const Frame& frame : thread.frames) {
      absl::StrAppend(&text, "    ", frame.function.empty() ? "?" : frame.function);
      if (!frame.file.empty()) absl::StrAppend(&text, " (", frame.file);
      if (!frame.file.empty() && frame.line != 0) absl::StrAppend(&text, ":", frame.line);
      absl::StrAppend(&text, frame.file.empty() ? "\n" : ")\n");
    }
  }
  return text;
}

}  // namespace ddprun::launcher
