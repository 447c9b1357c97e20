#include "worker_runtime/session.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// For a key that is there.
constexpr Milliseconds kThere(5000);
// "<id>/<world size>" of the rank 0 that came last.
constexpr char kSessionKey[] = "ddp/session";
// What stands where a rank's word would, once another rank 0 has come.
constexpr char kOver[] = "over";

std::string Key(const std::string& session, const char* what) {
  return absl::StrCat("ddp/", session, "/", what);
}
std::string HelloKey(const std::string& session, int rank) {
  return absl::StrCat(Key(session, "hello/"), rank);
}
// Where a rank that was given another world size says which.
std::string OddKey(const std::string& session, int rank) {
  return absl::StrCat(Key(session, "odd/"), rank);
}
std::string DoneKey(const std::string& session) { return Key(session, "done"); }
std::string NextKey(const std::string& session) { return Key(session, "next"); }

struct Session {
  std::string id;
  int world_size = 0;
};

std::string Encode(const Session& session) {
  return absl::StrCat(session.id, "/", session.world_size);
}

absl::StatusOr<Session> Decode(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  Session session;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[1], &session.world_size)) {
    session.id = parts[0];
    return session;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("agreeing on a session: another release of ddprun wrote \"", kSessionKey,
                   "\" into the store: give all ranks the same one"));
}

Milliseconds Left(ddprun::TimePoint deadline, const ddprun::Clock& clock) {
  return std::max(Milliseconds(1),
                  std::chrono::duration_cast<Milliseconds>(deadline - clock.Now()));
}

absl::Status Missing(const std::vector<int>& ranks, Milliseconds timeout) {
  return absl::DeadlineExceededError(absl::StrCat("agreeing on a session timed out after ",
                                                  NameDuration(timeout), ": ", NameRanks(ranks),
                                                  " did not come"));
}

// Rank 0, which cannot tell whom it misses.
absl::Status NobodyMissing(const absl::Status& asked, Milliseconds timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat("agreeing on a session timed out after ", NameDuration(timeout), ": ",
                   asked.ok() ? "the last rank came just then"
                              : absl::StrCat("who came is not known: ", asked.message())));
}

absl::Status OtherSize(int rank, int world_size, int other, absl::string_view size,
                       Milliseconds timeout) {
  return absl::InvalidArgumentError(
      absl::StrCat("agreeing on a session timed out after ", NameDuration(timeout), ": rank ", rank,
                   " was given a world size of ", world_size, ", rank ", other, " one of ", size,
                   "; all ranks of a group are given the same"));
}

// The value that the store holds afterwards: an older one, or `value`.
absl::StatusOr<std::string> SetFirst(Store& store, const std::string& key,
                                     const std::string& value) {
  auto held = store.CompareSet(key, "", value);
  if (!absl::IsUnimplemented(held.status())) return held;
  // A program's store that has none: a rank 0 that comes in between is not noticed.
  const auto has = store.Check({key});
  if (!has.ok()) return has.status();
  if (*has) return store.Get(key, kThere);
  absl::Status status = store.Set(key, value);
  if (!status.ok()) return status;
  return value;
}

// Sends those who wait in the session before this one, among them its rank 0, on to this one.
absl::Status EndOlder(Store& store, const std::string& older, const Session& session) {
  const auto old = Decode(older);
  if (!old.ok()) return absl::OkStatus();
  absl::Status status = store.Set(NextKey(old->id), Encode(session));
  if (!status.ok()) return status;
  const auto done = SetFirst(store, DoneKey(old->id), kOver);
  if (!done.ok() || *done != kOver) return done.status();
  std::vector<std::string> keys;
  for (int rank = 1; rank < old->world_size; ++rank) keys.push_back(HelloKey(old->id, rank));
  return store.MultiSet(keys, std::vector<std::string>(keys.size(), kOver));
}

absl::Status Publish(Store& store, const Session& session) {
  std::string older;
  const auto has = store.Check({kSessionKey});
  if (!has.ok()) return has.status();
  if (*has) {
    auto value = store.Get(kSessionKey, kThere);
    if (!value.ok()) return value.status();
    older = *std::move(value);
  }
  absl::Status status = store.Set(kSessionKey, Encode(session));
  if (!status.ok() || older.empty()) return status;
  return EndOlder(store, older, session);
}

// Rank 0, after its timeout.
absl::Status NotAllCame(Store& store, const Session& session, Milliseconds timeout) {
  std::vector<int> missing;
  absl::Status asked;
  for (int rank = 1; rank < session.world_size; ++rank) {
    const auto has = store.Check({HelloKey(session.id, rank)});
    asked = has.status();
    if (!has.ok()) break;  // a store that does not answer: each request would wait
    if (*has) continue;
    missing.push_back(rank);
    const std::string odd_key = OddKey(session.id, rank);
    const auto is_odd = store.Check({odd_key});
    if (!is_odd.ok() || !*is_odd) continue;
    const auto size = store.Get(odd_key, kThere);
    if (size.ok()) return OtherSize(0, session.world_size, rank, *size, timeout);
  }
  return missing.empty() ? NobodyMissing(asked, timeout) : Missing(missing, timeout);
}

// Rank 0. Its id is new, so only who lives beside it says hello to it.
absl::StatusOr<std::string> Lead(Store& store, int world_size, Milliseconds timeout,
                                 const ddprun::Clock& clock) {
  const ddprun::TimePoint deadline = clock.Now() + timeout;
  const Session session{NonceText(MakeNonce()), world_size};
  absl::Status status = Publish(store, session);
  if (!status.ok()) return status;
  std::vector<std::string> keys;
  for (int rank = 1; rank < world_size; ++rank) keys.push_back(HelloKey(session.id, rank));
  const auto hellos = store.MultiGet(keys, Left(deadline, clock));
  if (absl::IsDeadlineExceeded(hellos.status())) return NotAllCame(store, session, timeout);
  if (!hellos.ok()) return hellos.status();
  const std::string done = absl::StrJoin(*hellos, ",");
  const auto held = SetFirst(store, DoneKey(session.id), done);
  if (!held.ok()) return held.status();
  if (*held != done || std::ranges::count(*hellos, kOver) > 0) {
    // Going on would give the new start's ranks two ids to choose from.
    return absl::AbortedError("agreeing on a session: another rank 0 has started since");
  }
  return session.id;
}

// The value of kSessionKey may be an older start's: what was said there leads on to the newest.
absl::StatusOr<std::string> Follow(Store& store, const WorkerEnv& env, Milliseconds timeout,
                                   const ddprun::Clock& clock) {
  const ddprun::TimePoint deadline = clock.Now() + timeout;
  const std::string own = NonceText(MakeNonce());
  Session session;
  auto told = store.Get(kSessionKey, Left(deadline, clock));
  while (told.ok()) {
    auto decoded = Decode(*told);
    if (!decoded.ok()) return decoded.status();
    session = *std::move(decoded);
    const bool is_ours = session.world_size == env.world_size;
    absl::Status status =
        is_ours ? store.Set(HelloKey(session.id, env.rank), own)
                : store.Set(OddKey(session.id, env.rank), absl::StrCat(env.world_size));
    if (!status.ok()) return status;
    told = store.Get(DoneKey(session.id), Left(deadline, clock));
    if (!told.ok()) break;
    const std::vector<std::string> taken = absl::StrSplit(*told, ',');
    if (is_ours && std::ranges::count(taken, own) > 0) return session.id;
    told = store.Get(NextKey(session.id), Left(deadline, clock));
  }
  if (!absl::IsDeadlineExceeded(told.status())) return told.status();
  if (session.world_size != 0 && session.world_size != env.world_size) {
    return OtherSize(env.rank, env.world_size, 0, absl::StrCat(session.world_size), timeout);
  }
  return Missing({0}, timeout);
}

}  // namespace

absl::StatusOr<std::string> AgreeOnSession(Store& store, const WorkerEnv& env, Milliseconds timeout,
                                           const ddprun::Clock& clock) {
  if (env.round.has_value()) {
    return KeysOfRound(env.epoch.value_or(0), *env.round);
  }
  auto session = env.rank == 0 ? Lead(store, env.world_size, timeout, clock)
                               : Follow(store, env, timeout, clock);
  if (!session.ok()) return session.status();
  return absl::StrCat("ddp/", *session);
}

}  // namespace ddp::internal
