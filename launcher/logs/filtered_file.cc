#include "launcher/logs/filtered_file.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kWriteBytes = 64 * 1024;

}  // namespace

void FilteredFile::Take(std::string_view prefix, std::string_view text, std::string_view suffix) {
  if (!filter_.Matches(text)) return;
  taken_.append(prefix).append(text).append(suffix).push_back('\n');
  if (taken_.size() >= kWriteBytes) Flush();
}

void FilteredFile::Flush() {
  if (taken_.empty()) return;
  file_.Write(taken_);
  taken_.clear();
}

}  // namespace ddprun::launcher
