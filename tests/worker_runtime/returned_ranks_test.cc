#include "worker_runtime/returned_ranks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kLong = std::chrono::minutes(10);
constexpr char kNote[] = "spawn/returned";
constexpr char kWhy[] =
    "forming the group failed: rank 1 has returned before the group formed; if one rank forms a "
    "group, every rank of the Spawn does";

// The key space of a round. No time passes: a wait for a key that is not there ends at once. What
// the other ranks do meanwhile is done between two calls.
class Round final : public Store {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override {
    values[key] = value;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds) override {
    if (!values.contains(key)) return absl::DeadlineExceededError("not there");
    return values[key];
  }
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    ++checks;
    if (!check_error.ok()) return check_error;
    return HasAll(keys);
  }
  absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    if (!wait_error.ok()) return wait_error;
    longest_wait = std::max(longest_wait, timeout);
    if (HasAll(keys)) return absl::OkStatus();
    ++waits;
    if (after_wait) after_wait(waits);
    return absl::DeadlineExceededError("not there");
  }
  absl::StatusOr<int64_t> Add(const std::string&, int64_t) override { return Unused(); }
  absl::StatusOr<std::string> CompareSet(const std::string&, const std::string&,
                                         const std::string&) override {
    return Unused();
  }
  absl::StatusOr<bool> Delete(const std::string&) override { return Unused(); }
  absl::StatusOr<int64_t> KeyCount() override { return Unused(); }

  std::map<std::string, std::string> values;
  std::function<void(int wait)> after_wait;  // one that found nothing; the first is 1
  absl::Status check_error, wait_error;
  int checks = 0, waits = 0;
  Milliseconds longest_wait{0};

 private:
  static absl::Status Unused() { return absl::UnimplementedError("nobody asks for it"); }
  bool HasAll(const std::vector<std::string>& keys) const {
    return std::all_of(keys.begin(), keys.end(),
                       [this](const std::string& key) { return values.contains(key); });
  }
};

TEST_CASE("returned ranks: the note names all that have returned, or the first of many") {
  Round round;
  const auto note_of = [&round](const std::vector<int>& ranks) {
    CHECK(NoteReturnedRanks(round, ranks).ok());
    return round.values[kNote];
  };
  CHECK(note_of({1}) == "rank 1 has returned");
  CHECK(note_of({2, 0}) == "ranks 2, 0 have returned");
  std::vector<int> many(18);
  std::iota(many.begin(), many.end(), 0);
  CHECK(note_of(many) ==
        "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 2 more have returned");
}

TEST_CASE("returned ranks: a key that is there counts, whoever has returned") {
  Round round;
  KeysOfSpawn keys("group", round);
  round.values["group/id"] = "7";
  CHECK(NoteReturnedRanks(round, {1}).ok());
  CHECK(keys.Wait({"id"}, kLong).ok());
  CHECK(keys.Get("id", kLong).value() == "7");
  CHECK(round.checks == 0);
}

TEST_CASE("returned ranks: a key that comes late is waited for, in short waits") {
  Round round;
  KeysOfSpawn keys("group", round);
  round.after_wait = [&round](int wait) {
    if (wait == 3) round.values["group/id"] = "7";
  };
  CHECK(keys.Get("id", kLong).value() == "7");
  CHECK(round.waits == 3);
  CHECK(round.longest_wait == std::chrono::seconds(1));
}

TEST_CASE("returned ranks: a rank that returns ends the wait for a key that never comes") {
  for (const int when : {0, 1, 3}) {
    CAPTURE(when);
    Round round;
    KeysOfSpawn keys("group", round);
    if (when == 0) CHECK(NoteReturnedRanks(round, {1}).ok());
    round.after_wait = [&](int wait) {
      if (wait == when) CHECK(NoteReturnedRanks(round, {1}).ok());
    };
    CHECK(keys.Wait({"id", "address"}, kLong) == absl::AbortedError(kWhy));
    CHECK(round.longest_wait <= std::chrono::seconds(1));
    CHECK(keys.Get("id", kLong).status() == absl::AbortedError(kWhy));
  }
}

TEST_CASE("returned ranks: a rank that writes the key and then returns is no error") {
  Round round;
  KeysOfSpawn keys("group", round);
  round.after_wait = [&round](int) {
    round.values["group/id"] = "7";
    CHECK(NoteReturnedRanks(round, {1}).ok());
  };
  CHECK(keys.Wait({"id"}, kLong).ok());
  // One key of two is not enough.
  CHECK(keys.Wait({"id", "address"}, kLong) == absl::AbortedError(kWhy));
}

TEST_CASE("returned ranks: the deadline is the caller's, and the sentence names what was missing") {
  for (const int timeout_ms : {0, 1, 1000}) {
    Round round;
    KeysOfSpawn keys("group", round);
    const std::string text =
        "store: wait timeout after " + std::to_string(timeout_ms) + " ms, keys: id, address";
    CHECK(keys.Wait({"id", "address"}, Milliseconds(timeout_ms)) ==
          absl::DeadlineExceededError(text));
    CHECK(round.waits == 1);
    CHECK(round.longest_wait <= Milliseconds(timeout_ms));
  }
}

TEST_CASE("returned ranks: what the store has to say ends the wait") {
  const absl::Status gone = absl::UnavailableError("gone");
  Round round;
  KeysOfSpawn keys("group", round);
  round.check_error = gone;
  CHECK(keys.Wait({"id"}, kLong) == gone);
  CHECK(round.waits == 1);
  round.wait_error = gone;
  CHECK(keys.Wait({"id"}, kLong) == gone);
  CHECK(keys.Get("id", kLong).status() == gone);
}

}  // namespace
}  // namespace ddp::internal
