#include "launcher/logs/file_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kWriteBytes = 64 * 1024;

}  // namespace

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
  if (last_error_ == 0) untold_break_ = error;
  last_error_ = error;
  // Shrinking needs no space. Where even that fails, the half line stays.
  if (size_ != whole_size_ && ftruncate(fd_.get(), whole_size_) == 0) size_ = whole_size_;
  dropped_lines_ += static_cast<uint64_t>(std::count(rest.begin(), rest.end(), '\n'));
  is_skipping_ = rest.back() != '\n';
}

void FilteredFile::Take(std::string_view prefix, std::string_view text, std::string_view suffix) {
  const auto is_in_line = [text](const std::string& wanted) {
    return text.find(wanted) != std::string_view::npos;
  };
  if (std::none_of(texts_.begin(), texts_.end(), is_in_line)) return;
  taken_.append(prefix).append(text).append(suffix).push_back('\n');
  if (taken_.size() >= kWriteBytes) Flush();
}

void FilteredFile::Flush() {
  if (taken_.empty()) return;
  file_.Write(taken_);
  taken_.clear();
}

}  // namespace ddprun::launcher
