// Log files that stay sequences of whole lines whatever happens to their disk.
#ifndef DDPRUN_LAUNCHER_LOGS_FILE_SINK_H_
#define DDPRUN_LAUNCHER_LOGS_FILE_SINK_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// Bytes go in as they come. Where the file takes no more (full disk, quota, size limit), the
// unfinished line is taken back out, whole lines are dropped and counted, and writing goes on with
// the first line that fits again. One thread uses it.
class FileSink {
 public:
  // Creates `path` for appending; it must not exist.
  static absl::StatusOr<FileSink> Create(const std::string& path);
  explicit FileSink(UniqueFd fd, std::string path = {})
      : path_(std::move(path)), fd_(std::move(fd)) {}

  void Write(std::string_view bytes);
  // The stream is over: an unfinished line that is being dropped counts as a line.
  void Finish();

  const std::string& path() const { return path_; }
  uint64_t dropped_lines() const { return dropped_lines_; }
  int last_error() const { return last_error_; }  // errno; 0: nothing was dropped
  // errno of the first line that was dropped, once; 0: none was, or it has been taken.
  int TakeBreak() { return std::exchange(untold_break_, 0); }

 private:
  void Wrote(std::string_view bytes);
  void Drop(std::string_view rest, int error);

  std::string path_;
  UniqueFd fd_;
  off_t size_ = 0;
  off_t whole_size_ = 0;      // up to the end of the last whole line
  bool is_skipping_ = false;  // inside a line that is being dropped
  uint64_t dropped_lines_ = 0;
  int last_error_ = 0;
  int untold_break_ = 0;
};

// A file with the lines of all ranks that hold one of the texts of --duplicate_stdout_filters or
// --duplicate_stderr_filters. Lines come whole and with their prefix. One thread uses it.
class FilteredFile {
 public:
  // `texts`: what a line must hold one of, byte for byte. An empty one is in every line.
  FilteredFile(FileSink file, std::vector<std::string> texts)
      : file_(std::move(file)), texts_(std::move(texts)) {}

  // Takes the line if it matches; prefix and suffix do not count for that.
  void Take(std::string_view prefix, std::string_view text, std::string_view suffix);
  // Writes what was taken: many lines are one write.
  void Flush();

  FileSink& file() { return file_; }

 private:
  FileSink file_;
  std::vector<std::string> texts_;
  std::string taken_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_FILE_SINK_H_
