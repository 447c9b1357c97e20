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

absl::Status Missing(const std::vector<int>& ranks, Milliseconds timeout) {
  return absl::DeadlineExceededError(absl::StrCat("agreeing on a session timed out after ",
                                                  NameDuration(timeout), ": ", NameRanks(ranks),
                                                  " did not come"));
}

// Rank 0: an id lives until every rank has acknowledged it; a changed hello - a rank of this start
// that took the place of an old one - makes a new id.
absl::StatusOr<std::string> Lead(Store& store, int world_size, Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::vector<std::string> published;
  std::string session;
  while (true) {
    std::vector<std::string> hellos;
    std::vector<int> missing;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto left = std::max(Milliseconds(1),
                                 std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
      auto hello = store.Get(HelloKey(rank), left);
      if (absl::IsDeadlineExceeded(hello.status())) {
        missing.push_back(rank);
        continue;
      }
      if (!hello.ok()) return hello.status();
      hellos.push_back(*hello);
    }
    if (!missing.empty()) return Missing(missing, timeout);
    if (hellos != published) {
      session = NonceText(MakeNonce());
      published = hellos;
      absl::Status status =
          store.Set(kSessionKey, absl::StrCat(session, " ", absl::StrJoin(hellos, ",")));
      if (!status.ok()) return status;
    }
    for (int rank = 1; rank < world_size; ++rank) {
      auto has = store.Check({AckKey(session, rank)});
      if (!has.ok()) return has.status();
      if (!*has) missing.push_back(rank);
    }
    if (missing.empty()) return session;
    if (Clock::now() >= deadline) return Missing(missing, timeout);
    std::this_thread::sleep_for(kLook);
  }
}

absl::StatusOr<std::string> Follow(Store& store, int rank, const std::string& nonce,
                                   Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (Clock::now() < deadline) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    auto value = store.Get(kSessionKey, std::max(Milliseconds(1), left));
    if (absl::IsDeadlineExceeded(value.status())) break;
    if (!value.ok()) return value.status();
    const std::vector<std::string> parts = absl::StrSplit(*value, ' ');
    if (parts.size() == 2) {
      const std::vector<std::string> nonces = absl::StrSplit(parts[1], ',');
      if (static_cast<size_t>(rank) < nonces.size() && nonces[rank] == nonce) {
        absl::Status status = store.Set(AckKey(parts[0], rank), "1");
        if (!status.ok()) return status;
        return parts[0];
      }
    }
    std::this_thread::sleep_for(kLook);
  }
  return Missing({0}, timeout);
}

}  // namespace

absl::StatusOr<std::string> AgreeOnSession(Store& store, const WorkerEnv& env,
                                           Milliseconds timeout) {
  if (env.round.has_value()) {
    return absl::StrCat("ddp/", env.epoch.value_or(0), ".", *env.round);
  }
  const std::string nonce = NonceText(MakeNonce());
  absl::Status status = store.Set(HelloKey(env.rank), nonce);
  if (!status.ok()) return status;
  auto session = env.rank == 0 ? Lead(store, env.world_size, timeout)
                               : Follow(store, env.rank, nonce, timeout);
  if (!session.ok()) return session.status();
  return absl::StrCat("ddp/", *session);
}

}  // namespace ddp::internal
