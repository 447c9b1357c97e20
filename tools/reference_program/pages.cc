#include "tools/reference_program/pages.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/reference_program/tables.h"

namespace ddprun::reference {
namespace {

constexpr char kBegin[] = "<!-- generated: ";
constexpr char kEnd[] = "<!-- end -->";

}  // namespace

std::vector<std::string> GeneratedFiles() {
  std::vector<std::string> paths;
  for (const Block& block : Blocks()) {
    if (paths.empty() || paths.back() != block.page) paths.push_back(block.page);
  }
  return paths;
}

absl::StatusOr<std::string> UpToDate(const std::string& path, const std::string& text) {
  std::string out;
  size_t at = 0, used = 0;
  const std::vector<Block> blocks = Blocks();
  for (size_t begin = 0; (begin = text.find(kBegin, at)) != std::string::npos;) {
    const size_t name_at = begin + sizeof(kBegin) - 1;
    const size_t name_end = text.find(" -->", name_at), end = text.find(kEnd, name_at);
    if (end == std::string::npos || name_end > end) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": '", text.substr(begin, 40),
                                                     "': expected ' -->' and then '", kEnd, "'"));
    }
    const std::string name = text.substr(name_at, name_end - name_at);
    const auto block = std::find_if(blocks.begin(), blocks.end(), [&](const Block& each) {
      return each.page == path && each.name == name;
    });
    if (block == blocks.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no table is called '", name, "': take the mark away"));
    }
    ++used;
    absl::StrAppend(&out, text.substr(at, name_end - at), " -->\n\n", block->text, "\n");
    at = end;
  }
  const auto expected = static_cast<size_t>(std::count_if(
      blocks.begin(), blocks.end(), [&](const Block& each) { return each.page == path; }));
  if (used == expected) return out + text.substr(at);
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", used, " marks '", kBegin, "...', expected ", expected, ", one for each table"));
}

}  // namespace ddprun::reference
