#include "rendezvous/store/wire.h"

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace ddprun::rendezvous {
namespace {

using Result = RequestParser::Result;

// A request that owns its fields, so that it outlives the bytes it came from.
struct Request {
  StoreOp op;
  uint32_t word = 0;
  int64_t number = 0;
  std::vector<std::string> fields;
  friend bool operator==(const Request&, const Request&) = default;
};

Request Own(const StoreCommand& command) {
  return {command.op, command.word, command.number,
          std::vector<std::string>(command.fields.begin(), command.fields.end())};
}

std::string Encode(const Request& request) {
  std::string bytes;
  AppendRequest({request.op, request.word, request.number,
                 std::vector<std::string_view>(request.fields.begin(), request.fields.end())},
                &bytes);
  return bytes;
}

// One of every command, with empty, binary and repeated fields.
std::vector<Request> OneOfEach() {
  const std::string binary("\0\1\xff", 3);
  return {
      {StoreOp::kValidate, kStoreMagic, 0, {}},
      {StoreOp::kPing, 0x01020304, 0, {}},
      {StoreOp::kSet, 0, 0, {"/key", binary}},
      {StoreOp::kSet, 0, 0, {"", ""}},
      {StoreOp::kCompareSet, 0, 0, {"/key", "", "desired"}},
      {StoreOp::kGet, 0, 0, {"/key"}},
      {StoreOp::kAdd, 0, -7, {"/counter"}},
      {StoreOp::kCheck, 0, 0, {"/a", "/b"}},
      {StoreOp::kCheck, 0, 0, {}},
      {StoreOp::kWait, 0, 0, {"/a", "", "/c"}},
      {StoreOp::kGetNumKeys, 0, 0, {}},
      {StoreOp::kDeleteKey, 0, 0, {"/key"}},
      {StoreOp::kAppend, 0, 0, {"/key", "more"}},
      {StoreOp::kMultiGet, 0, 0, {"/a"}},
      {StoreOp::kMultiSet, 0, 0, {"/a", "1", "/b", binary}},
      {StoreOp::kMultiSet, 0, 0, {}},
      {StoreOp::kCancelWait, 0, 0, {}},
      {StoreOp::kQueuePush, 0, 0, {"/q", "item"}},
      {StoreOp::kQueuePop, 0, 0, {"/q"}},
      {StoreOp::kQueueLen, 0, 0, {"/q"}},
      {StoreOp::kListKeys, 0, 0, {}},
      {StoreOp::kBarrier, 0, 4, {"/barrier"}},
  };
}

std::string EncodeAll(const std::vector<Request>& requests) {
  std::string bytes;
  for (const Request& request : requests) bytes += Encode(request);
  return bytes;
}

// What a server makes of `stream` when it arrives cut at `cuts` (ascending). Empty result and
// `*is_bad` when the parser refuses.
std::vector<Request> ParseInPieces(std::string_view stream, const std::vector<size_t>& cuts,
                                   bool* is_bad, const StoreLimits& limits = {}) {
  RequestParser parser;
  StoreCommand command;
  std::vector<Request> requests;
  std::string pending;
  size_t from = 0;
  *is_bad = false;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t to = i < cuts.size() ? cuts[i] : stream.size();
    pending += stream.substr(from, to - from);
    from = to;
    while (true) {
      size_t used = 0;
      const Result result = parser.Parse(pending, limits, &command, &used);
      if (result == Result::kNeedMore) break;
      if (result == Result::kBad) {
        *is_bad = true;
        return requests;
      }
      requests.push_back(Own(command));
      pending.erase(0, used);
    }
  }
  if (!pending.empty()) *is_bad = true;
  return requests;
}

Result ParseOnce(std::string_view bytes, const StoreLimits& limits = {}) {
  RequestParser parser;
  StoreCommand command;
  size_t used = 0;
  return parser.Parse(bytes, limits, &command, &used);
}

std::string Number(uint64_t value) {
  std::string bytes;
  AppendI64(static_cast<int64_t>(value), &bytes);
  return bytes;
}

TEST_CASE("wire: what the encoder writes the parser reads back") {
  for (const Request& request : OneOfEach()) {
    CAPTURE(static_cast<int>(request.op));
    bool is_bad = false;
    const auto parsed = ParseInPieces(Encode(request), {}, &is_bad);
    CHECK_FALSE(is_bad);
    REQUIRE(parsed.size() == 1);
    CHECK(parsed[0] == request);
  }
}

TEST_CASE("wire: requests have the bytes that PyTorch's client sends") {
  CHECK(Encode({StoreOp::kValidate, kStoreMagic, 0, {}}) == std::string("\x00\xCE\xF7\x85\x3C", 5));
  CHECK(Encode({StoreOp::kAdd, 0, 1, {"init/"}}) ==
        std::string("\x04\x05\0\0\0\0\0\0\0init/\x01\0\0\0\0\0\0\0", 22));
  CHECK(Encode({StoreOp::kWait, 0, 0, {"/k"}}) ==
        std::string("\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k", 19));
}

TEST_CASE("wire: any split into two pieces gives the same requests") {
  const auto requests = OneOfEach();
  const std::string stream = EncodeAll(requests);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    CAPTURE(cut);
    bool is_bad = false;
    CHECK(ParseInPieces(stream, {cut}, &is_bad) == requests);
    CHECK_FALSE(is_bad);
  }
}

TEST_CASE("wire: single bytes and random pieces give the same requests") {
  const auto requests = OneOfEach();
  const std::string stream = EncodeAll(requests);
  std::vector<size_t> every;
  for (size_t i = 1; i < stream.size(); ++i) every.push_back(i);
  bool is_bad = false;
  CHECK(ParseInPieces(stream, every, &is_bad) == requests);
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::minstd_rand random(seed);
    const uint32_t one_in = 1 + seed % 30;
    std::vector<size_t> cuts;
    for (size_t i = 1; i < stream.size(); ++i) {
      if (random() % one_in == 0) cuts.push_back(i);
    }
    CHECK(ParseInPieces(stream, cuts, &is_bad) == requests);
    CHECK_FALSE(is_bad);
  }
}

TEST_CASE("wire: random bytes end in a refusal or a wait for more, never beyond the bytes") {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::minstd_rand random(seed);
    std::string noise;
    // Small numbers are frequent, so that lengths and opcodes are often believable.
    for (int i = 0; i < 200; ++i) {
      noise += static_cast<char>(random() % 4 == 0 ? random() % 19 : random() % 2);
    }
    std::vector<size_t> cuts;
    for (size_t i = 1; i < noise.size(); i += 1 + random() % 9) cuts.push_back(i);
    bool whole_is_bad = false;
    bool pieces_are_bad = false;
    const auto whole = ParseInPieces(noise, {}, &whole_is_bad);
    CHECK(ParseInPieces(noise, cuts, &pieces_are_bad) == whole);
    CHECK(whole_is_bad == pieces_are_bad);
  }
}

TEST_CASE("wire: an unknown opcode is refused at its first byte") {
  for (int op = 19; op < 256; ++op)
    CHECK(ParseOnce(std::string(1, static_cast<char>(op))) == Result::kBad);
}

TEST_CASE("wire: a limit is refused as soon as the length is read, and kept exactly") {
  const std::string set(1, static_cast<char>(StoreOp::kSet));
  const std::string wait(1, static_cast<char>(StoreOp::kWait));
  CHECK(ParseOnce(set + Number(8 << 10)) == Result::kNeedMore);
  CHECK(ParseOnce(set + Number((8 << 10) + 1)) == Result::kBad);
  CHECK(ParseOnce(set + Number(~uint64_t{0})) == Result::kBad);
  const std::string key = set + Number(1) + "k";
  CHECK(ParseOnce(key + Number(8 << 20)) == Result::kNeedMore);
  CHECK(ParseOnce(key + Number((8 << 20) + 1)) == Result::kBad);
  CHECK(ParseOnce(key + Number(~uint64_t{0} - 8)) == Result::kBad);
  CHECK(ParseOnce(wait + Number(131072)) == Result::kNeedMore);
  CHECK(ParseOnce(wait + Number(131073)) == Result::kBad);
}

TEST_CASE("wire: the sum of a command's fields has a limit of its own") {
  StoreLimits limits;
  limits.command_bytes = 100;
  const Request fits{StoreOp::kMultiSet, 0, 0, {"/a", "1", "/b", "2"}};
  CHECK(ParseOnce(Encode(fits), limits) == Result::kCommand);
  const Request too_long{StoreOp::kMultiSet, 0, 0, {"/a", "1", "/b", std::string(60, 'x')}};
  CHECK(ParseOnce(Encode(too_long), limits) == Result::kBad);
}

TEST_CASE("wire: the largest allowed number of keys is one command") {
  const Request request{StoreOp::kCheck, 0, 0, std::vector<std::string>(131072, "/k")};
  bool is_bad = false;
  const auto parsed = ParseInPieces(Encode(request), {1000, 100000}, &is_bad);
  REQUIRE(parsed.size() == 1);
  CHECK(parsed[0] == request);
}

}  // namespace
}  // namespace ddprun::rendezvous
