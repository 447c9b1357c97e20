#include "launcher/report/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/report/own_links.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

struct Written {
  uint64_t lost = 0;
  absl::Status first_error{};
};

absl::Status Open(const std::string& path, UniqueFd& fd) {
  // Behind what stands there, by the place that all have who write to that descriptor.
  if (const std::optional<int> own = OwnDescriptor(path)) {
    fd = UniqueFd(fcntl(*own, F_DUPFD_CLOEXEC, 0));
    return fd.is_open() ? absl::OkStatus() : FileError("open", EscapeControl(path));
  }
  // O_NONBLOCK: a FIFO would wait for its reader.
  absl::StatusOr<UniqueFd> opened =
      OpenOwn(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK, 0666);
  if (!opened.ok()) return opened.status();
  fd = *std::move(opened);
  struct stat about {};
  if (fstat(fd.get(), &about) != 0) return FileError("stat", EscapeControl(path));
  if (S_ISREG(about.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("open \"", EscapeControl(path), "\": expected a regular file"));
}

// Takes back the beginning of a line that did not fit, unless somebody has written behind it.
void TakeBack(int fd, ssize_t count) {
  struct stat about {};
  const off_t end = lseek(fd, 0, SEEK_CUR);  // where an appending write has left it
  if (end < count || fstat(fd, &about) != 0 || about.st_size != end) return;
  // Nothing more can be done where it fails: what stands there is no JSON, and readers see that.
  static_cast<void>(ftruncate(fd, end - count) == 0);
}

absl::Status WriteLine(int fd, const std::string& line, const std::string& path) {
  ssize_t count = 0;
  do {
    count = write(fd, line.data(), line.size());
  } while (count < 0 && errno == EINTR);
  if (count == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  if (count >= 0) {
    // The next write says why: a full disk, a limit on files or a quota.
    const std::string rest = line.substr(static_cast<size_t>(count));
    const ssize_t more = write(fd, rest.data(), rest.size());
    const int why = more < 0 ? errno : ENOSPC;
    if (more == static_cast<ssize_t>(rest.size())) return absl::OkStatus();
    TakeBack(fd, count + std::max<ssize_t>(more, 0));
    errno = why;
  }
  return FileError("write", EscapeControl(path));
}

Written WriteLines(const std::string& path, const std::vector<std::string>& lines) {
  Written written;
  if (lines.empty()) return written;
  UniqueFd fd;
  written.first_error = Open(path, fd);
  if (!written.first_error.ok()) {
    written.lost = lines.size();
    return written;
  }
  for (const std::string& line : lines) {
    absl::Status status = WriteLine(fd.get(), line, path);
    if (status.ok()) continue;
    if (written.lost++ == 0) written.first_error = std::move(status);
  }
  return written;
}

}  // namespace

EventFile::EventFile(Options options, FileThread& files,
                     std::function<void(const std::string&)> warn)
    : options_(std::move(options)), files_(files), warn_(std::move(warn)) {}

void EventFile::Append(std::string line) {
  if (waiting_.size() >= kMaxWaiting) {
    return Lose(1, absl::StrCat(kMaxWaiting, " lines wait for ", EscapeControl(options_.path)));
  }
  waiting_.push_back(std::move(line) + "\n");
  if (!is_writing_) WriteWaiting();
}

void EventFile::WriteWaiting() {
  is_writing_ = true;
  const uint64_t count = waiting_.size();
  files_.Ask<Written>(
      "events", options_.path, options_.write_timeout,
      [path = options_.path, lines = std::exchange(waiting_, {})] {
        return WriteLines(path, lines);
      },
      [this, count](std::optional<Written> written) {
        is_writing_ = false;
        if (!written) {
          Lose(count, absl::StrCat("write \"", EscapeControl(options_.path),
                                   "\": its file system does not answer"));
        } else if (written->lost > 0) {
          Lose(written->lost, std::string(written->first_error.message()));
        }
        if (!waiting_.empty()) return WriteWaiting();
        if (on_flushed_) std::exchange(on_flushed_, nullptr)();
      });
}

void EventFile::Flush(std::function<void()> done) {
  on_flushed_ = std::move(done);
  if (!is_writing_) WriteWaiting();  // with nothing to write, for the answer
}

void EventFile::Lose(uint64_t count, const std::string& why) {
  if (lost_ == 0) {
    warn_(absl::StrCat("warning: events are lost: ", why, "; ",
                       "the numbers of the lines tell which"));
  }
  lost_ += count;
}

}  // namespace ddprun::launcher
