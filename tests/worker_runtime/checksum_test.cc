#include "worker_runtime/checksum.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace ddp::internal {
namespace {

std::string Hash(const std::string& text) {
  Checksum checksum;
  checksum.Add(text.data(), text.size());
  return ToHex(checksum.Get());
}

std::string Mixed() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  return text;
}

TEST_CASE("checksum: gives what xxhsum -H2 prints") {
  CHECK(Hash("") == "99aa06d3014798d86001c324468d497f");
  CHECK(Hash("abc") == "06b05ab6733a618578af5f94892f3950");
  CHECK(Hash("\xbd") == "86a926c81570c892eaa002ec9cc1f4b6");
  CHECK(Hash(Mixed()) == "abee229cdadad76d10ad30264426c830");
  CHECK(Hash(std::string(1000000, 'a')) == "a545df8e384a9579b1fd6fae5285c4eb");
}

TEST_CASE("checksum: pieces of any size give the digest of the whole") {
  const std::string text = Mixed();
  const std::string whole = Hash(text);
  for (size_t piece = 1; piece < 300; ++piece) {
    Checksum checksum;
    for (size_t i = 0; i < text.size(); i += piece) {
      checksum.Add(text.data() + i, std::min(piece, text.size() - i));
    }
    checksum.Add(nullptr, 0);
    REQUIRE(ToHex(checksum.Get()) == whole);
  }
}

}  // namespace
}  // namespace ddp::internal
