// What workers print. The byte 1 stands for 33,000 letters, so that small inputs meet the bounds.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/logs/lines.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {
namespace {

using fuzz::Promise;
using Pieces = std::vector<std::string>;

Pieces Expanded(const std::vector<std::string_view>& pieces) {
  Pieces expanded;
  size_t total = 0;
  for (const std::string_view piece : pieces) {
    std::string& text = expanded.emplace_back();
    for (const char c : piece) {
      const bool is_many = c == 1 && total < 100'000;
      text.append(is_many ? 33'000 : 1, is_many ? 'x' : c);
      total += is_many ? 33'000 : 1;
    }
  }
  return expanded;
}

std::string Lines(const Pieces& pieces) {
  LineSplitter splitter;
  std::string lines;
  const auto take = [&](const LineSplitter::Line& line) {
    Promise(line.text.size() <= LineSplitter::kMaxLine, "a line is bounded");
    Promise(line.text.find_first_of("\r\n") == std::string_view::npos, "a line is without its end");
    Promise(!line.is_cut || line.text.size() == LineSplitter::kMaxLine, "only long lines are cut");
    lines.append(line.text).append(line.is_cut ? "+\n" : "\n");
  };
  for (const std::string& piece : pieces) splitter.Push(piece, take);
  splitter.Finish(take);
  return lines;
}

// The same where what is unfinished after each piece is shown at once.
std::string ShownLines(const Pieces& pieces) {
  LineSplitter splitter;
  std::string lines;
  const auto take = [&](const LineSplitter::Line& line) {
    Promise(line.shown <= line.text.size(), "no more was shown than there is");
    lines.append(line.text.substr(line.shown)).append(line.is_cut ? "+\n" : "\n");
  };
  for (const std::string& piece : pieces) {
    splitter.Push(piece, take);
    const std::string_view text = splitter.Unfinished();
    lines.append(text);
    splitter.MarkShown(text.size());
  }
  splitter.Finish(take);
  return lines;
}

std::string Tail(const Pieces& pieces) {
  TailBuffer tail;
  size_t total = 0;
  for (const std::string& piece : pieces) {
    tail.Append(piece);
    total += piece.size();
  }
  Promise(tail.total() == total, "a tail counts what it was given");
  const std::string from_half = tail.From(total / 2);
  Promise(from_half.size() <= TailBuffer::kMaxBytes, "a tail is bounded");
  return tail.LastLines(3) + "|" + from_half;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto divisions = fuzz::Divisions(fuzz::TextOf(data, size));
  const Pieces whole = Expanded(divisions[0]);
  const std::string lines = Lines(whole), tail = Tail(whole);
  Promise(ShownLines(whole) == lines, "what is shown early is shown once");
  for (size_t i = 1; i < divisions.size(); ++i) {
    const Pieces pieces = Expanded(divisions[i]);
    Promise(Lines(pieces) == lines, "the lines depend on the bytes alone");
    Promise(ShownLines(pieces) == lines, "what is shown early is shown once");
    Promise(Tail(pieces) == tail, "the tail depends on the bytes alone");
  }
  return 0;
}

}  // namespace ddprun::launcher
