#include "worker_runtime/sha256.h"

#include <doctest/doctest.h>

#include <string>

namespace ddp::internal {
namespace {

std::string Hash(const std::string& text) {
  Sha256 hash;
  hash.Add(text.data(), text.size());
  return ToHex(hash.Finish());
}

// From FIPS 180-2, appendix B, and NIST's CAVP byte vectors.
TEST_CASE("sha256: gives the digests of the standard") {
  CHECK(Hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(Hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(Hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(
      Hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnop"
           "qrlmnopqrsmnopqrstnopqrstu") ==
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(Hash(std::string("\xbd", 1)) ==
        "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
  CHECK(Hash(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: pieces of any size give the digest of the whole") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  const std::string whole = Hash(text);
  for (size_t piece = 1; piece < 200; ++piece) {
    Sha256 hash;
    for (size_t i = 0; i < text.size(); i += piece) {
      hash.Add(text.data() + i, std::min(piece, text.size() - i));
    }
    hash.Add(nullptr, 0);
    REQUIRE(ToHex(hash.Finish()) == whole);
  }
}

}  // namespace
}  // namespace ddp::internal
