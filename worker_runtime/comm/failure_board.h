// Where ranks tell each other what went wrong: keys in the round's store.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_FAILURE_BOARD_H_
#define DDPRUN_WORKER_RUNTIME_COMM_FAILURE_BOARD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/store.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/op_record.h"
#include "worker_runtime/comm/survey.h"

namespace ddp::internal {

// A link only tells that a neighbour is gone or silent, and NCCL tells less; why, and which rank
// further away is to blame, stands here. Costs nothing while all is well: the connection is made by
// the first call. Every call is bounded and gives up quietly, since the store may be gone as well.
// Any thread.
class FailureBoard {
 public:
  using ConnectStore =
      std::function<absl::StatusOr<std::unique_ptr<Store>>(std::chrono::milliseconds timeout)>;

  // `name`: of the communicator, whose sequence numbers are its own. The failure is the whole
  // group's.
  FailureBoard(std::string name, int rank, int world_size, ConnectStore connect)
      : name_(std::move(name)),
        rank_(rank),
        world_size_(world_size),
        connect_(std::move(connect)) {}

  // Says what ended the group, unless somebody has said it before. Returns the first word on it.
  absl::Status Publish(const absl::Status& status);
  // What was published; Ok if nothing within `patience`.
  absl::Status Read(std::chrono::milliseconds patience);
  // This rank has arrived at the operation and waits for others, or has been through it.
  void SayArrived(const Op& op);
  // All ranks time out at one moment, and one is to find out for all who is missing: the first that
  // claims to. Returns its number, or -1 if the store cannot be asked. The others read its word.
  int ClaimSurvey();
  // Ranks that have not said so of this operation or a later one, as far as can be asked within
  // kSurveyTime; none was asked if there is no store. Those few that seem to be missing are asked
  // twice, half a second apart: they may be about to say so. Ends at the store's first error.
  Survey MissingAt(uint64_t sequence);
  // InvalidArgument naming the next rank and both operations, if it waits in another one of the
  // same number. Where ranks are in different operations, two neighbours are, so that asking about
  // one rank is enough, however many there are.
  absl::Status MismatchAt(const Op& op);

 private:
  Store* Connected();
  std::string ArrivedKey(int rank) const;
  // Where `rank` said that it waits: nothing if it said nothing, an error if that cannot be known.
  absl::StatusOr<std::optional<OpRecord>> ArrivalOf(Store& store, int rank);

  const std::string name_;
  const int rank_;
  const int world_size_;
  const ConnectStore connect_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::unique_ptr<Store> store_;
  bool has_failed_ = false;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_FAILURE_BOARD_H_
