#include "worker_runtime/gpu/texts_of_file.h"

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_dir.h"

namespace ddp::internal {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr std::string_view kTexts[] = {"with it", "without"};

std::optional<size_t> FirstIn(const std::string& content) {
  const ddprun::testing::TempDir dir;
  std::ofstream(dir.File("library"), std::ios::binary) << content;
  return FirstTextOfFile(dir.File("library"), kTexts);
}

TEST_CASE("texts of file: the one that stands first is named, wherever the other is") {
  CHECK(FirstIn("with it") == 0);
  CHECK(FirstIn(std::string(100, '\0') + "without" + std::string(100, '\0') + "with it") == 1);
  CHECK(FirstIn("with it without") == 0);
  CHECK(FirstIn("without" + std::string(3 * kMiB, 'x') + "with it") == 1);
}

TEST_CASE("texts of file: it is found at every place around the end of a piece") {
  for (size_t before = kMiB - 9; before < kMiB + 2; ++before) {
    CAPTURE(before);
    CHECK(FirstIn(std::string(before, 'x') + "without") == 1);
    CHECK(FirstIn(std::string(before + kMiB, 'x') + "without" + std::string(9, 'x')) == 1);
  }
}

TEST_CASE("texts of file: there is nothing in one that has none of them, or is not there") {
  CHECK(FirstIn("") == std::nullopt);
  CHECK(FirstIn("with i" + std::string(2 * kMiB, 'x') + "ithout") == std::nullopt);
  CHECK(FirstTextOfFile("/nowhere/library", kTexts) == std::nullopt);
}

}  // namespace
}  // namespace ddp::internal
