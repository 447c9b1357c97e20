#include "launcher/logs/file_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

absl::StatusOr<FileSink> FileSink::Create(const std::string& path) {
  // O_EXCL: the folder is ours and new, so what is there already was put there by somebody.
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.is_open()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("create log file ", path));
  }
  return FileSink(std::move(fd), path);
}

void FileSink::Write(std::string_view bytes) {
  if (is_skipping_) {
    const size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) return;
    bytes.remove_prefix(newline + 1);
    is_skipping_ = false;
    ++dropped_lines_;
  }
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Drop(bytes, written < 0 ? errno : EIO);
    Wrote(bytes.substr(0, static_cast<size_t>(written)));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void FileSink::Finish() {
  if (is_skipping_) ++dropped_lines_;
  is_skipping_ = false;
}

void FileSink::Wrote(std::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  if (newline != std::string_view::npos) whole_size_ = size_ + static_cast<off_t>(newline) + 1;
  size_ += static_cast<off_t>(bytes.size());
}

void FileSink::Drop(std::string_view rest, int error) {
  dropped_lines_ += static_cast<uint64_t>(std::count(rest.begin(), rest.end(), '\n'));
  Skip(rest.back() != '\n', error);
}

void FileSink::Skip(bool is_in_line, int error) {
  last_error_ = error;
  // Shrinking needs no space. Where even that fails, the half line stays.
  if (size_ != whole_size_ && ftruncate(fd_.get(), whole_size_) == 0) size_ = whole_size_;
  is_skipping_ = is_in_line;
}

}  // namespace ddprun::launcher
