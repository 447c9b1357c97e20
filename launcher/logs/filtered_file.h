// A file with the lines of all ranks that hold one of the texts of --duplicate_stdout_filters or
// --duplicate_stderr_filters.
#ifndef DDPRUN_LAUNCHER_LOGS_FILTERED_FILE_H_
#define DDPRUN_LAUNCHER_LOGS_FILTERED_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/logs/file_sink.h"

namespace ddprun::launcher {

// Lines come whole and with their prefix; a full disk costs whole lines, which the file counts. One
// thread uses it.
class FilteredFile {
 public:
  // `texts`: what a line must hold one of, byte for byte. An empty one is in every line.
  FilteredFile(FileSink file, std::vector<std::string> texts)
      : file_(std::move(file)), texts_(std::move(texts)) {}

  // Takes the line if it matches; prefix and suffix do not count for that.
  void Take(std::string_view prefix, std::string_view text, std::string_view suffix);
  // Writes what was taken. Many lines are one write, few bytes wait for it.
  void Flush();

  const FileSink& file() const { return file_; }

 private:
  FileSink file_;
  std::vector<std::string> texts_;
  std::string taken_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_FILTERED_FILE_H_
