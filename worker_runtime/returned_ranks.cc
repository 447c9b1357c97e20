#include "worker_runtime/returned_ranks.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddp::internal {
namespace {

using Clock = std::chrono::steady_clock;

// Keys of a group begin otherwise (process_group.cc).
constexpr char kReturnedKey[] = "spawn/returned";
// How long a wait lasts between two looks. The store has no way to wait for one of two keys.
constexpr std::chrono::milliseconds kLook(1000);
// The note names all that have returned: a sentence of so many is enough.
constexpr size_t kNamedRanks = 16;

}  // namespace

absl::Status NoteReturnedRanks(Store& store, const std::vector<int>& ranks) {
  const size_t named = std::min(ranks.size(), kNamedRanks);
  std::string text = absl::StrCat(
      ranks.size() == 1 ? "rank " : "ranks ",
      absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (named < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - named, " more");
  absl::StrAppend(&text, ranks.size() == 1 ? " has" : " have", " returned");
  return store.Set(kReturnedKey, text);
}

absl::Status KeysOfSpawn::LookForReturned() {
  const absl::StatusOr<bool> is_there = round_.Check({kReturnedKey});
  if (!is_there.ok()) return is_there.status();
  if (!*is_there) return absl::OkStatus();
  const absl::StatusOr<std::string> text = round_.Get(kReturnedKey, kLook);
  if (!text.ok()) return text.status();
  return absl::AbortedError(absl::StrCat(
      "forming the group failed: ", *text,
      " before the group formed; if one rank forms a group, every rank of the Spawn does"));
}

absl::Status KeysOfSpawn::Wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const Clock::time_point begin = Clock::now();
  while (true) {
    const auto spent = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
    const Milliseconds left = std::max(timeout - spent, Milliseconds(0));
    absl::Status status = PrefixStore::Wait(keys, std::min(left, kLook));
    if (!absl::IsDeadlineExceeded(status)) return status;
    if (left <= kLook) {
      return absl::DeadlineExceededError(absl::StrCat("store: wait timeout after ", timeout.count(),
                                                      " ms, keys: ", absl::StrJoin(keys, ", ")));
    }
    const absl::Status returned = LookForReturned();
    if (returned.ok()) continue;
    // The keys may have come before that rank returned.
    const absl::StatusOr<bool> are_there = PrefixStore::Check(keys);
    return are_there.ok() && *are_there ? absl::OkStatus() : returned;
  }
}

absl::StatusOr<std::string> KeysOfSpawn::Get(const std::string& key, Milliseconds timeout) {
  if (absl::Status status = Wait({key}, timeout); !status.ok()) return status;
  return PrefixStore::Get(key, timeout);
}

}  // namespace ddp::internal
