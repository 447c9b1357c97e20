#include "launcher/logs/lines.h"

#include <algorithm>

namespace ddprun::launcher {
namespace {

// The length of `text` without a UTF-8 character at its end that is not whole.
size_t WholeCharacters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(text.size(), 3); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

TimePoint LineSplitter::ShowAt(TimePoint now) {
  if (Unfinished().empty()) {
    show_at_ = TimePoint::max();
  } else if (show_at_ == TimePoint::max()) {
    show_at_ = now + kPatience;
  }
  return show_at_;
}

std::string_view LineSplitter::Unfinished() const {
  const std::string_view rest = std::string_view(partial_).substr(shown_);
  return rest.substr(0, WholeCharacters(rest));
}

void LineSplitter::MarkShown(size_t bytes) {
  shown_ += bytes;
  show_at_ = TimePoint::max();
}

bool LineSplitter::Next(std::string_view& bytes, Line& line) {
  if (was_return_) {
    was_return_ = false;
    if (bytes.front() == '\n') {
      bytes.remove_prefix(1);
      return false;
    }
  }
  // One byte more than fits is looked at: a line of just kMaxLine bytes is whole.
  const size_t room = kMaxLine - partial_.size();
  const std::string_view window = bytes.substr(0, room + 1);
  size_t end = window.find('\n');
  if (const size_t carriage = window.substr(0, end).find('\r');
      carriage != std::string_view::npos) {
    end = carriage;
  }
  if (end == std::string_view::npos && window.size() <= room) {
    partial_.append(bytes);
    bytes = {};
    return false;
  }
  line.is_cut = end == std::string_view::npos;
  const std::string_view text = window.substr(0, line.is_cut ? room : end);
  was_return_ = !line.is_cut && bytes[end] == '\r';
  if (partial_.empty()) {
    line.text = text;
  } else {
    partial_.append(text);
    line.text = partial_;
  }
  line.shown = std::exchange(shown_, 0);
  show_at_ = TimePoint::max();  // the next line has its own time
  bytes.remove_prefix(text.size() + (line.is_cut ? 0 : 1));
  return !(was_return_ && line.text.empty());
}

std::string TailBuffer::From(uint64_t offset) const {
  const uint64_t wanted = total_ - std::min(offset, total_);
  const size_t kept = std::min({bytes_.size(), kMaxBytes, static_cast<size_t>(wanted)});
  return bytes_.substr(bytes_.size() - kept);
}

void TailBuffer::Append(std::string_view bytes) {
  total_ += bytes.size();
  if (bytes.size() >= kMaxBytes) {
    bytes_.assign(bytes.substr(bytes.size() - kMaxBytes));
    return;
  }
  if (bytes_.size() + bytes.size() > 2 * kMaxBytes) bytes_.erase(0, bytes_.size() - kMaxBytes);
  bytes_.append(bytes);
}

std::string TailBuffer::LastLines(size_t max_lines) const {
  std::string_view tail = bytes_;
  if (tail.size() > kMaxBytes) tail.remove_prefix(tail.size() - kMaxBytes);
  if (tail.empty() || max_lines == 0) return "";
  // The newline that ends the last line ends no line before it.
  size_t begin = tail.size() - (tail.back() == '\n' ? 1 : 0);
  for (size_t lines = 0; lines < max_lines; ++lines) {
    const size_t newline = begin == 0 ? std::string_view::npos : tail.rfind('\n', begin - 1);
    if (newline == std::string_view::npos) return std::string(tail);
    begin = newline;
  }
  return std::string(tail.substr(begin + 1));
}

void LineFilter::Take(std::string_view prefix, std::string_view text, std::string_view suffix) {
  const auto is_in_line = [text](const std::string& wanted) {
    return text.find(wanted) != std::string_view::npos;
  };
  if (std::none_of(texts_.begin(), texts_.end(), is_in_line)) return;
  taken_.append(prefix).append(text).append(suffix).push_back('\n');
}

}  // namespace ddprun::launcher
