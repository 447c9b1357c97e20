// reference [--check]: writes the generated parts of the reference pages, or says which differ.
//
// It runs in the project's folder; tools/reference starts it.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/reference_program/pages.h"

namespace ddprun::reference {
namespace {

enum class Result { kSame, kDiffers, kFailed };

Result Fail(const std::string& what) {
  std::cerr << "reference: " << what << "\n";
  return Result::kFailed;
}

Result Take(const std::string& path, bool only_checks) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file && std::filesystem::exists(path)) return Fail("cannot read " + path);
  const absl::StatusOr<std::string> wanted = UpToDate(path, text);
  if (!wanted.ok()) return Fail(std::string(wanted.status().message()));
  if (*wanted == text) return Result::kSame;
  if (only_checks) {
    std::cout << path << ": differs from the product's tables: run tools/reference\n";
    return Result::kDiffers;
  }
  std::ofstream out(path, std::ios::trunc);
  out << *wanted << std::flush;
  if (!out) return Fail("cannot write " + path);
  std::cout << path << ": written\n";
  return Result::kSame;
}

int Main(int argc, char** argv) {
  const bool only_checks = argc == 2 && std::string_view(argv[1]) == "--check";
  if (argc > 1 && !only_checks) {
    std::cerr << "usage: tools/reference [--check]\n";
    return 2;
  }
  bool is_well = true;
  for (const std::string& path : GeneratedFiles()) {
    is_well = Take(path, only_checks) == Result::kSame && is_well;
  }
  return is_well ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::reference

int main(int argc, char** argv) { return ddprun::reference::Main(argc, argv); }
