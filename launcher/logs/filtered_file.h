// A file with the lines of all ranks that hold one of the texts of --duplicate_stdout_filters or
// --duplicate_stderr_filters.
#ifndef DDPRUN_LAUNCHER_LOGS_FILTERED_FILE_H_
#define DDPRUN_LAUNCHER_LOGS_FILTERED_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/logs/file_sink.h"
#include "launcher/logs/line_filter.h"

namespace ddprun::launcher {

// Lines come whole and with their prefix; a full disk costs whole lines, which the file counts. One
// thread uses it.
class FilteredFile {
 public:
  FilteredFile(FileSink file, LineFilter filter)
      : file_(std::move(file)), filter_(std::move(filter)) {}

  // Takes the line if it matches; prefix and suffix do not count for that.
  void Take(std::string_view prefix, std::string_view text, std::string_view suffix);
  // Writes what was taken. Many lines are one write, few bytes wait for it.
  void Flush();

  const FileSink& file() const { return file_; }

 private:
  FileSink file_;
  LineFilter filter_;
  std::string taken_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_FILTERED_FILE_H_
