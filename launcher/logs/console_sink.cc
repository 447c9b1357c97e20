#include "launcher/logs/console_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ddprun::launcher {
namespace {

// poll() promises a pipe's writer one page, a terminal's 256 bytes.
constexpr size_t kPolledPipeBytes = 4096;
constexpr size_t kPolledTerminalBytes = 256;

uint64_t CountLines(std::string_view bytes) {
  return static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
}

}  // namespace

ConsoleSink::ConsoleSink(int fd) {
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    is_broken_ = true;  // started with the descriptor closed
    return;
  }
  if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    // A description of our own, because O_NONBLOCK on the shared one would surprise the shell and
    // the workers. Not for files: it would have an offset of its own, too.
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    fd_.Reset(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    kind_ = fd_.is_open() ? Kind::kNonBlocking : Kind::kPolled;
  } else if (S_ISSOCK(status.st_mode)) {
    kind_ = Kind::kSocket;
  }
  if (!fd_.is_open()) fd_.Reset(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  is_broken_ = !fd_.is_open();
}

void ConsoleSink::AppendLine(std::string_view prefix, std::string_view text,
                             std::string_view suffix, uint64_t source, size_t shown) {
  text.remove_prefix(shown);
  const bool goes_on = shown > 0 && unfinished_ == source;
  // All of it is there, and another source has ended it.
  if (shown > 0 && !goes_on && text.empty() && suffix.empty()) return;
  if (!goes_on) EndLine();
  if (goes_on) prefix = {};
  if (is_broken_ || !has_room_for(prefix.size() + text.size() + suffix.size() + 1)) {
    EndLine();
    ++dropped_lines_;
    return;
  }
  Append(prefix);
  Append(text);
  Append(suffix);
  Append("\n");
  unfinished_ = 0;
}

bool ConsoleSink::AppendUnfinished(uint64_t source, std::string_view prefix,
                                   std::string_view text) {
  // With the newline that another source may need to end it.
  if (is_broken_ || !has_room_for(prefix.size() + text.size() + 1)) return false;
  if (unfinished_ != source) {
    EndLine();
    Append(prefix);
  }
  Append(text);
  unfinished_ = source;
  return true;
}

bool ConsoleSink::EndLine() {
  if (std::exchange(unfinished_, 0) == 0) return false;
  Append("\n");
  return true;
}

void ConsoleSink::AppendRaw(Cursor& cursor, std::string_view bytes) {
  EndLine();
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    if (cursor.is_skipping) {
      if (newline == std::string_view::npos) return;
      ++dropped_lines_;
      cursor.is_skipping = false;
      bytes.remove_prefix(newline + 1);
      continue;
    }
    if (!is_broken_ && has_room_for(bytes.size())) return Append(bytes);
    const size_t length = newline == std::string_view::npos ? bytes.size() : newline + 1;
    if (!is_broken_ && has_room_for(length)) {
      Append(bytes.substr(0, length));
      bytes.remove_prefix(length);
    } else {
      cursor.is_skipping = true;
    }
  }
}

void ConsoleSink::AppendMessage(std::string_view text) {
  if (is_broken_ || queued() + text.size() + 2 > kCapacity + kReserve) {
    ++dropped_lines_;
    return;
  }
  if (last_byte_ != '\n') Append("\n");
  Append(text);
  Append("\n");
  unfinished_ = 0;
}

void ConsoleSink::Append(std::string_view bytes) {
  if (bytes.empty()) return;
  if (std::exchange(is_torn_, false)) {
    queue_.push_back('\n');  // it is empty: nothing was queued since the drop
    begins_with_repair_ = true;
  }
  queue_.append(bytes);
  last_byte_ = bytes.back();
}

void ConsoleSink::Flush(TimePoint now) {
  WriteQueue();
  if (queued() > kHighWater) {
    if (!full_since_) full_since_ = now;
    if (now - *full_since_ >= kPatience) is_stalled_ = true;
    return;
  }
  full_since_.reset();
  is_stalled_ = false;
  if (dropped_lines_ == announced_lines_ || is_broken_) return;
  const uint64_t lines = dropped_lines_ - announced_lines_;
  announced_lines_ = dropped_lines_;
  AppendMessage("ddprun: " + std::to_string(lines) + (lines == 1 ? " line is" : " lines are") +
                " missing here: the reader of this output had stopped");
  WriteQueue();
}

void ConsoleSink::WriteQueue() {
  while (queued() > 0) {
    const ssize_t written = WriteSome();
    if (written > 0) {
      head_ += static_cast<size_t>(written);
      last_written_ = queue_[head_ - 1];
      begins_with_repair_ = false;
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else if (written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else {
      DropQueue(written < 0 ? errno : EIO);
    }
  }
  // Moving the rest down costs no more than what was written since the last time.
  if (head_ >= queued()) {
    queue_.erase(0, head_);
    head_ = 0;
  }
}

TimePoint ConsoleSink::NextDeadline() const {
  return is_stalled_ || !full_since_ ? TimePoint::max() : *full_since_ + kPatience;
}

ssize_t ConsoleSink::WriteSome() {
  const char* data = queue_.data() + head_;
  size_t length = queued();
  if (kind_ == Kind::kSocket) return send(fd_.get(), data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::kPolled) {
    pollfd ready = {.fd = fd_.get(), .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) <= 0) {
      errno = EAGAIN;
      return -1;
    }
    length = std::min(length, isatty(fd_.get()) ? kPolledTerminalBytes : kPolledPipeBytes);
  }
  // SIGPIPE is blocked in the log thread: a reader that is gone is an error, not the end.
  return write(fd_.get(), data, length);
}

void ConsoleSink::DropQueue(int error) {
  is_broken_ = can_block() && (error == EPIPE || error == EIO || error == ECONNRESET);
  if (is_broken_) untold_break_ = error;
  const std::string_view rest = std::string_view(queue_).substr(head_);
  const bool has_unfinished = std::exchange(unfinished_, 0) != 0 && !rest.empty();
  const uint64_t lines = CountLines(rest) + (has_unfinished ? 1 : 0) -
                         (std::exchange(begins_with_repair_, false) ? 1 : 0);
  dropped_lines_ += lines;
  announced_lines_ = dropped_lines_;  // telling needs the same room
  if (!is_broken_) {
    refused_lines_ += lines;
    last_error_ = error;
  }
  queue_.clear();
  head_ = 0;
  is_torn_ = last_written_ != '\n';
  last_byte_ = '\n';
}

}  // namespace ddprun::launcher
