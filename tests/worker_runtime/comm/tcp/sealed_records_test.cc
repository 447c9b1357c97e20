// Records of a sealed link: whatever pieces they come in, and whatever is done to them on the way.
#include "worker_runtime/comm/tcp/sealed_records.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

constexpr Key kKey = {1, 2, 3, 4, 5};
constexpr size_t kOverhead = RecordSealer::kHeaderBytes + LinkCipher::kTagBytes;

const LinkCrypto& Crypto() {
  const auto crypto = LinkCrypto::OfThisProcess();
  REQUIRE_MESSAGE(crypto.ok(), crypto.status().ToString());
  return **crypto;
}

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

// The records of these pieces, one each.
std::vector<std::string> Sealed(const std::vector<std::string>& pieces, const Key& key = kKey) {
  RecordSealer sealer(Crypto().Sealing(key));
  std::vector<std::string> records;
  for (const std::string& piece : pieces) {
    const size_t half = piece.size() / 3;
    sealer.Seal(std::string_view(piece).substr(0, half), std::string_view(piece).substr(half));
    records.emplace_back(sealer.Pending());
    sealer.Sent(records.back().size());
  }
  return records;
}

std::string Joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

struct Opened {
  std::string text;
  bool is_broken = false;
};

// What comes in portions of `portion` bytes and is read `room` bytes at a time.
Opened Open(const std::string& sealed, size_t portion, size_t room) {
  RecordOpener opener(Crypto().Opening(kKey));
  Opened opened;
  std::string to(room, '\0');
  size_t said = 0;
  for (;;) {
    const std::optional<size_t> read = opener.Read(to.data(), to.size());
    if (!read) {
      opened.is_broken = true;
      CHECK_FALSE(opener.Read(to.data(), to.size()));  // for good
      return opened;
    }
    opened.text.append(to, 0, *read);
    if (*read > 0) continue;
    if (said == sealed.size()) return opened;
    const std::span<char> space = opener.Room();
    REQUIRE(!space.empty());
    const size_t bytes = std::min({portion, sealed.size() - said, space.size()});
    std::memcpy(space.data(), sealed.data() + said, bytes);
    opener.Received(bytes);
    said += bytes;
  }
}

TEST_CASE("sealed records: what was sealed is opened, in whatever portions it comes and is read") {
  const std::vector<std::string> pieces = {Pattern(1), Pattern(40), Pattern(5000),
                                           Pattern(RecordSealer::kMostBytes), Pattern(3)};
  const std::string sealed = Joined(Sealed(pieces)), plain = Joined(pieces);
  CHECK(sealed.size() == plain.size() + pieces.size() * kOverhead);
  for (const size_t portion : {size_t{1}, size_t{3}, size_t{19}, size_t{4096}, size_t{1} << 20}) {
    for (const size_t room : {size_t{1}, size_t{40}, size_t{1000}, size_t{1} << 20}) {
      CAPTURE(portion);
      CAPTURE(room);
      const Opened opened = Open(sealed, portion, room);
      CHECK_FALSE(opened.is_broken);
      CHECK(opened.text == plain);
    }
  }
}

TEST_CASE("sealed records: nothing of what is in them can be read on the way") {
  const std::string plain(4096, 'a');
  const std::string sealed = Joined(Sealed({plain, plain}));
  CHECK(sealed != Contains(std::string(8, 'a')));
  // The same bytes twice do not look the same.
  const size_t record = plain.size() + kOverhead;
  CHECK(sealed.substr(4, plain.size()) != sealed.substr(record + 4, plain.size()));
}

TEST_CASE("sealed records: any bit that was flipped is noticed") {
  const std::string sealed = Joined(Sealed({Pattern(24), Pattern(9)}));
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    CAPTURE(bit);
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const Opened opened = Open(changed, 1 << 20, 1 << 20);
    // A size that has grown waits for bytes that do not come, and one beyond the most is refused.
    const bool is_of_first = bit < (24 + kOverhead) * 8;
    CHECK((opened.is_broken || opened.text.size() < 24 + 9));
    CHECK(opened.text.size() <= (is_of_first ? 0u : 24u));
  }
}

TEST_CASE("sealed records: a part of a record is nothing, and no error yet") {
  const std::string sealed = Joined(Sealed({Pattern(50)}));
  for (size_t size = 0; size < sealed.size(); ++size) {
    const Opened opened = Open(sealed.substr(0, size), 1 << 20, 1 << 20);
    CHECK_FALSE(opened.is_broken);
    CHECK(opened.text.empty());
  }
}

TEST_CASE("sealed records: one left out, said twice, moved or of another key does not open") {
  const std::vector<std::string> records = Sealed({Pattern(10), Pattern(20), Pattern(30)});
  const std::vector<std::string> others = Sealed({Pattern(10)}, Key{9});
  const std::pair<const char*, std::string> rows[] = {
      {"left out", records[0] + records[2]},
      {"said twice", records[0] + records[0]},
      {"moved", records[0] + records[2] + records[1]},
      {"of another key", records[0] + others[0]},
  };
  for (const auto& [name, bytes] : rows) {
    CAPTURE(name);
    const Opened opened = Open(bytes, 1 << 20, 1 << 20);
    CHECK(opened.is_broken);
    CHECK(opened.text == Pattern(10));
  }
  CHECK(Open(others[0], 1 << 20, 1 << 20).is_broken);
}

TEST_CASE("sealed records: a size that no record has is refused before anything of it is kept") {
  for (const std::string& header : {std::string(4, '\0'), std::string("\xff\xff\xff\xff"),
                                    std::string("\x00\x01\x00\x01", 4)}) {
    CHECK(Open(header, 1, 100).is_broken);
  }
}

// RFC 5869, test case 1 (its PRK, its info and the first 32 bytes of its output).
TEST_CASE("link crypto: keys are derived as HKDF does") {
  const auto bytes = [](std::string_view hex) {
    Key key{};
    for (size_t i = 0; i < key.size(); ++i) {
      key[i] = static_cast<uint8_t>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
    }
    return key;
  };
  const Key prk = bytes("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
  const std::string info = "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9";
  CHECK(Crypto().Derive(prk, info) ==
        bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
}

}  // namespace
}  // namespace ddp::internal
