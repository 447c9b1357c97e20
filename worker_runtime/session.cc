#include "worker_runtime/session.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr char kSessionKey[] = "ddp/session";
// How often both sides look for a change; the store has no way to wait for one.
constexpr Milliseconds kLook(20);

std::string HelloKey(int rank) { return absl::StrCat("ddp/hello/", rank); }
std::string AckKey(const std::string& session, int rank) {
  return absl::StrCat("ddp/", session, "/ack/", rank);
}
std::string DoneKey(const std::string& session) { return absl::StrCat("ddp/", session, "/done"); }

absl::Status Missing(const std::vector<int>& ranks, Milliseconds timeout) {
  return absl::DeadlineExceededError(absl::StrCat("agreeing on a session timed out after ",
                                                  NameDuration(timeout), ": ", NameRanks(ranks),
                                                  " did not come"));
}

// What a rank sets: new each time, and as how many ranks it knows.
std::string Hello(int world_size) { return absl::StrCat(NonceText(MakeNonce()), "/", world_size); }
std::string SizeIn(const std::string& hello) {
  return hello.substr(std::min(hello.find('/'), hello.size() - 1) + 1);
}

absl::Status OtherSize(int rank, int world_size, int other, const std::string& hello,
                       Milliseconds timeout) {
  return absl::InvalidArgumentError(
      absl::StrCat("agreeing on a session timed out after ", NameDuration(timeout), ": rank ", rank,
                   " was given a world size of ", world_size, ", rank ", other, " one of ",
                   SizeIn(hello), "; all ranks of a group are given the same"));
}

// After the timeout: where a rank has another world size, that is why. Before it a hello may be an
// older start's, which is replaced.
absl::Status TimedOut(Store& store, int rank, int world_size, const std::vector<int>& missing,
                      Milliseconds timeout) {
  for (int other = 0; other < world_size; ++other) {
    auto has = store.Check({HelloKey(other)});
    if (!has.ok()) break;  // a store that does not answer: each request would wait
    if (!*has) continue;
    auto hello = store.Get(HelloKey(other), kLook);
    if (!hello.ok() || SizeIn(*hello) == absl::StrCat(world_size)) continue;
    return OtherSize(rank, world_size, other, *hello, timeout);
  }
  return Missing(missing, timeout);
}

// Those of `keys`, which are in the order of the ranks from `first` on, that the store does not
// have.
std::vector<int> Absent(Store& store, const std::vector<std::string>& keys, int first) {
  std::vector<int> ranks;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto has = store.Check({keys[i]});
    if (has.ok() && !*has) ranks.push_back(first + static_cast<int>(i));
  }
  return ranks;
}

// Rank 0: an id lives until every rank has acknowledged it; a changed hello - a rank of this start
// that took the place of an old one - makes a new id. Two requests a look, however many ranks.
absl::StatusOr<std::string> Lead(Store& store, int world_size, const std::string& hello,
                                 Milliseconds timeout, const ddprun::Clock& clock) {
  const auto deadline = clock.Now() + timeout;
  std::vector<std::string> hello_keys;
  for (int rank = 0; rank < world_size; ++rank) hello_keys.push_back(HelloKey(rank));
  std::vector<std::string> published, ack_keys;
  std::string session;
  while (true) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - clock.Now());
    auto hellos = store.MultiGet(hello_keys, std::max(Milliseconds(1), left));
    if (absl::IsDeadlineExceeded(hellos.status())) {
      return TimedOut(store, 0, world_size, Absent(store, hello_keys, 0), timeout);
    }
    if (!hellos.ok()) return hellos.status();
    if ((*hellos)[0] != hello) {
      // Going on would give the new start's ranks two ids to choose from.
      return absl::AbortedError("agreeing on a session: another rank 0 has started since");
    }
    const auto odd =
        std::find_if(hellos->begin(), hellos->end(), [world_size](const std::string& other) {
          return SizeIn(other) != absl::StrCat(world_size);
        });
    if (odd != hellos->end()) {
      const int other = static_cast<int>(odd - hellos->begin());
      if (clock.Now() >= deadline) return OtherSize(0, world_size, other, *odd, timeout);
      std::this_thread::sleep_for(kLook);
      continue;
    }
    if (*hellos != published) {
      session = NonceText(MakeNonce());
      published = *std::move(hellos);
      ack_keys.clear();
      for (int rank = 1; rank < world_size; ++rank) ack_keys.push_back(AckKey(session, rank));
      absl::Status status =
          store.Set(kSessionKey, absl::StrCat(session, " ", absl::StrJoin(published, ",")));
      if (!status.ok()) return status;
    }
    if (ack_keys.empty()) return session;
    auto has_all = store.Check(ack_keys);
    if (!has_all.ok()) return has_all.status();
    if (*has_all) {
      absl::Status status = store.Set(DoneKey(session), "1");
      if (!status.ok()) return status;
      return session;
    }
    if (clock.Now() >= deadline) {
      return TimedOut(store, 0, world_size, Absent(store, ack_keys, 1), timeout);
    }
    std::this_thread::sleep_for(kLook);
  }
}

absl::StatusOr<std::string> Follow(Store& store, const WorkerEnv& env, const std::string& hello,
                                   Milliseconds timeout, const ddprun::Clock& clock) {
  const int rank = env.rank;
  const auto deadline = clock.Now() + timeout;
  while (clock.Now() < deadline) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - clock.Now());
    auto value = store.Get(kSessionKey, std::max(Milliseconds(1), left));
    if (absl::IsDeadlineExceeded(value.status())) break;
    if (!value.ok()) return value.status();
    const std::vector<std::string> parts = absl::StrSplit(*value, ' ');
    if (parts.size() == 2) {
      const std::vector<std::string> hellos = absl::StrSplit(parts[1], ',');
      if (static_cast<size_t>(rank) < hellos.size() && hellos[rank] == hello) {
        absl::Status status = store.Set(AckKey(parts[0], rank), "1");
        if (!status.ok()) return status;
        // Another rank's old hello may stand beside ours: then rank 0 makes a new id.
        auto is_done = store.Check({DoneKey(parts[0])});
        if (!is_done.ok()) return is_done.status();
        if (*is_done) return parts[0];
      }
    }
    std::this_thread::sleep_for(kLook);
  }
  return TimedOut(store, rank, env.world_size, {0}, timeout);
}

}  // namespace

absl::StatusOr<std::string> AgreeOnSession(Store& store, const WorkerEnv& env, Milliseconds timeout,
                                           const ddprun::Clock& clock) {
  if (env.round.has_value()) {
    return KeysOfRound(env.epoch.value_or(0), *env.round);
  }
  const std::string hello = Hello(env.world_size);
  absl::Status status = store.Set(HelloKey(env.rank), hello);
  if (!status.ok()) return status;
  auto session = env.rank == 0 ? Lead(store, env.world_size, hello, timeout, clock)
                               : Follow(store, env, hello, timeout, clock);
  if (!session.ok()) return session.status();
  return absl::StrCat("ddp/", *session);
}

}  // namespace ddp::internal
