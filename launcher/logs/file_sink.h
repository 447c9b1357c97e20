// Log files that stay sequences of whole lines whatever happens to their disk.
#ifndef DDPRUN_LAUNCHER_LOGS_FILE_SINK_H_
#define DDPRUN_LAUNCHER_LOGS_FILE_SINK_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

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
  // What comes next follows bytes that were dropped elsewhere, the last of them inside a line or
  // not.
  void Skip(bool is_in_line, int error);
  // The stream is over: an unfinished line that is being dropped counts as a line.
  void Finish();

  const std::string& path() const { return path_; }
  uint64_t dropped_lines() const { return dropped_lines_; }
  bool is_skipping() const { return is_skipping_; }
  int last_error() const { return last_error_; }  // errno; 0: nothing was dropped

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
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_FILE_SINK_H_
