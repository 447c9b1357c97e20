#include "launcher/logs/log_losses.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {

void LogLosses::Add(const FileSink& file) {
  file_lines += file.dropped_lines();
  if (file.last_error() != 0) file_error = file.last_error();
}

void LogLosses::Add(const ConsoleSink& console) {
  console_lines += console.dropped_lines();
  refused_lines += console.refused_lines();
  if (console.last_error() != 0) console_error = console.last_error();
}

std::string LossWarning(const LogLosses& before, const LogLosses& now, const std::string& folder) {
  std::vector<std::string> parts;
  const auto add = [&parts](uint64_t lines, const std::string& place, int error) {
    parts.push_back(absl::StrCat(lines, lines == 1 ? " line is" : " lines are", " missing from ",
                                 place, ": ", std::strerror(error)));
  };
  if (now.file_lines > before.file_lines) {
    add(now.file_lines, "log files in " + folder, now.file_error);
  }
  if (now.refused_lines > before.refused_lines) {
    add(now.refused_lines, "the console", now.console_error);
  }
  return parts.empty() ? "" : "warning: " + absl::StrJoin(parts, "; ");
}

std::string BreakWarning(int error) {
  return absl::StrCat("ddprun: warning: from here on lines are missing from the console: ",
                      std::strerror(error));
}

}  // namespace ddprun::launcher
