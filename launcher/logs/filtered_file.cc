#include "launcher/logs/filtered_file.h"

#include <algorithm>

namespace ddprun::launcher {
namespace {

constexpr size_t kWriteBytes = 64 * 1024;

}  // namespace

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
