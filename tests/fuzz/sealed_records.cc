// What comes over a sealed link of the tcp backend: records, and what was done to them on the way.
#include "worker_runtime/comm/tcp/sealed_records.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/promise.h"

namespace ddp::internal {
namespace {

using ddprun::fuzz::Divisions;
using ddprun::fuzz::Input;
using ddprun::fuzz::Promise;

constexpr Key kKey = {1, 2, 3, 4, 5};
constexpr size_t kOverhead = RecordSealer::kHeaderBytes + LinkCipher::kTagBytes;
constexpr int kMostRecords = 6;
constexpr size_t kEnough = 2 * UINT8_MAX;  // for what is in any record here

const LinkCrypto& Crypto() {
  static const LinkCrypto& crypto = **LinkCrypto::OfThisProcess();
  return crypto;
}

// What was read before it ended, or before more had to come.
struct Heard {
  std::string plain;
  bool is_broken = false;
  bool has_unread = false;
  friend bool operator==(const Heard&, const Heard&) = default;
};

// Reads all that is there, as much at a time as there is room in `to`.
void ReadAll(RecordOpener& opener, std::string& to, Heard* heard) {
  for (;;) {
    const std::optional<size_t> size = opener.Read(to.data(), to.size());
    heard->is_broken = !size.has_value();
    if (heard->is_broken || *size == 0) return;
    Promise(*size <= to.size(), "no more is read than there is room for");
    heard->plain.append(to, 0, *size);
  }
}

Heard Hear(const std::vector<std::string_view>& pieces, size_t room) {
  RecordOpener opener(Crypto().Opening(kKey));
  std::string to(room, '\0');
  Heard heard;
  for (std::string_view piece : pieces) {
    while (!piece.empty() && !heard.is_broken) {
      const std::span<char> free = opener.Room();
      Promise(!free.empty(), "there is room for more");
      const size_t taken = std::min(piece.size(), free.size());
      std::memcpy(free.data(), piece.data(), taken);
      opener.Received(taken);
      piece.remove_prefix(taken);
      ReadAll(opener, to, &heard);
    }
  }
  if (heard.is_broken) {
    char byte = 0;
    Promise(!opener.Read(&byte, 1).has_value(), "what is broken stays so");
  } else {
    heard.has_unread = opener.HasUnread();
  }
  return heard;
}

// The same whatever the pieces and the room are.
Heard HearAnyHow(std::string_view bytes, size_t room) {
  const std::vector<std::vector<std::string_view>> divisions = Divisions(bytes);
  const Heard heard = Hear(divisions[0], kEnough);
  bool is_same = true;
  for (const std::vector<std::string_view>& pieces : divisions) {
    is_same = is_same && Hear(pieces, room) == heard;
  }
  Promise(is_same, "what is heard does not depend on how the bytes come");
  return heard;
}

struct Said {
  std::string plain;
  std::vector<std::string> records;
  std::vector<size_t> ends;  // of what is in each, in `plain`
};

std::string Joined(const std::vector<std::string>& records) {
  std::string all;
  for (const std::string& record : records) all += record;
  return all;
}

Said Say(Input& input) {
  Said said;
  RecordSealer sealer(Crypto().Sealing(kKey));
  const uint64_t count = 1 + input.Number(1) % kMostRecords;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t first = input.Number(1), second = input.Number(1);
    std::string text(input.Text(first));
    text.resize(first, 'x');
    text.append(second, static_cast<char>('a' + i));
    if (text.empty()) text = "-";
    const size_t cut = std::min(first, text.size());
    sealer.Seal(std::string_view(text).substr(0, cut), std::string_view(text).substr(cut));
    said.records.emplace_back(sealer.Pending());
    Promise(said.records.back().size() == text.size() + kOverhead, "a record has its size");
    while (sealer.HasPending()) sealer.Sent(std::min<size_t>(sealer.Pending().size(), 7));
    said.plain += text;
    said.ends.push_back(said.plain.size());
  }
  return said;
}

// How many records were not touched by what was done at this byte.
size_t RecordsBefore(const Said& said, size_t at) {
  size_t count = 0, end = 0;
  for (const std::string& record : said.records) {
    end += record.size();
    if (end > at) break;
    ++count;
  }
  return count;
}

void CheckHeard(const Heard& heard, const Said& said, size_t untouched) {
  Promise(heard.plain == said.plain.substr(0, untouched == 0 ? 0 : said.ends[untouched - 1]),
          "what was said before is heard, and nothing else");
}

// One change of what was sealed.
void Disturb(const Said& said, size_t room, Input& input) {
  std::string sealed = Joined(said.records);
  const size_t at = input.Number(2) % sealed.size();
  const size_t one = input.Number(1) % said.records.size();
  const size_t other = input.Number(1) % said.records.size();
  const unsigned flipped = 1u << input.Number(1) % 8;
  {
    std::string changed = sealed;
    changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ flipped);
    const Heard heard = HearAnyHow(changed, room);
    CheckHeard(heard, said, RecordsBefore(said, at));
    Promise(heard.is_broken || heard.has_unread, "a flipped bit is never accepted");
  }
  {
    const Heard heard = HearAnyHow(std::string_view(sealed).substr(0, at), room);
    CheckHeard(heard, said, RecordsBefore(said, at));
    Promise(!heard.is_broken, "what is cut off waits for the rest");
  }
  std::vector<std::string> records = said.records;
  if (one != other) {
    std::swap(records[one], records[other]);
    const Heard heard = HearAnyHow(Joined(records), room);
    CheckHeard(heard, said, std::min(one, other));
    Promise(heard.is_broken || heard.has_unread, "records in another order are not accepted");
  } else {
    records.insert(records.begin() + static_cast<std::ptrdiff_t>(one), records[one]);
    const Heard heard = HearAnyHow(Joined(records), room);
    CheckHeard(heard, said, one + 1);
    Promise(heard.is_broken, "a record that is said again is not accepted");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = ddprun::fuzz::TextOf(data, size);
  const Heard stranger = HearAnyHow(bytes, 1 + size % 100);
  Promise(stranger.plain.empty(), "nothing is heard of who has not the key");
  Input input(data, size);
  const size_t room = 1 + input.Number(1);
  const Said said = Say(input);
  const Heard heard = HearAnyHow(Joined(said.records), room);
  Promise(heard == Heard{said.plain, false, false}, "what was said is heard");
  Disturb(said, room, input);
  return 0;
}

}  // namespace ddp::internal
