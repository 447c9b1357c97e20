// The ranks of a ddp::Spawn that have returned: its caller notes them in the store, and who forms a
// group of all ranks looks for the note while it waits.
#ifndef DDPRUN_WORKER_RUNTIME_RETURNED_RANKS_H_
#define DDPRUN_WORKER_RUNTIME_RETURNED_RANKS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/store.h"

namespace ddp::internal {

// The run id of the ranks of a Spawn. Under a launcher whose job has this name nobody writes the
// note, and looking for it does no harm.
inline constexpr char kSpawnRunId[] = "spawn";

// `store` is the key space of the round, `ranks` are all that have returned, of which there is one
// at least.
absl::Status NoteReturnedRanks(Store& store, const std::vector<int>& ranks);

// The keys by which the ranks of a Spawn form one group. Whoever has formed the group has found or
// written each key that the others wait for (form_group.h), so that a key which is not there when a
// rank has returned never comes: a wait for it ends within seconds, Aborted, and names that rank.
class KeysOfSpawn final : public PrefixStore {
 public:
  // `round` is the key space of the round, and outlives this.
  KeysOfSpawn(std::string group, Store& round)
      : PrefixStore(std::move(group), round), round_(round) {}

  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) override;
  absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) override;

 private:
  // Not OK: a rank has returned, or the store does not answer.
  absl::Status LookForReturned();

  Store& round_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_RETURNED_RANKS_H_
