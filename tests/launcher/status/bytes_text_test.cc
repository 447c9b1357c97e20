#include "launcher/status/bytes_text.h"

#include <doctest/doctest.h>

#include <limits>

namespace ddprun::launcher {
namespace {

TEST_CASE("bytes text: one decimal where it says something, rounded down") {
  constexpr int64_t kGiB = int64_t{1} << 30;
  CHECK(BytesText(0) == "0 bytes");
  CHECK(BytesText(1023) == "1023 bytes");
  CHECK(BytesText(1024) == "1 KiB");
  CHECK(BytesText(1536) == "1.5 KiB");
  CHECK(BytesText(64 * kGiB) == "64 GiB");
  CHECK(BytesText(64 * kGiB - 1) == "63.9 GiB");
  CHECK(BytesText(kGiB - 1) == "1023.9 MiB");
  CHECK(BytesText(std::numeric_limits<int64_t>::max()) == "7.9 EiB");
}

}  // namespace
}  // namespace ddprun::launcher
