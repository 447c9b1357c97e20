#include "worker_runtime/join_rounds.h"

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/graph_capture.h"

namespace ddp::internal {

namespace {

// What a rank sends.
struct Word {
  int32_t act;
  int32_t divides_by_initial;
};

const char* NameOf(JoinAct act) {
  if (act == JoinAct::kJoined) return "Wait()";
  return act == JoinAct::kPass ? "backward pass" : "broadcast of buffers";
}

}  // namespace

// A rank that reads the round late hears the same: another may have left by then.
absl::Status JoinRounds::End(const std::string& why) {
  communicator_.Abort(why);
  return absl::FailedPreconditionError(why);
}

absl::StatusOr<JoinRounds::Round> JoinRounds::Next(JoinAct mine) {
  const GraphCapture* capture = communicator_.graph_capture();
  if (capture != nullptr && capture->is_capturing()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a captured step with a ", NameOf(mine),
        " in a Join. The ranks tell each other on the host what they are about to do, and a replay "
        "runs nothing on the host. Capture steps outside of a Join"));
  }
  const Word word{static_cast<int32_t>(mine), divides_by_initial_ ? 1 : 0};
  std::vector<Word> all(static_cast<size_t>(communicator_.world_size()));
  static_assert(sizeof(Word) == 2 * sizeof(int32_t));
  absl::Status status = communicator_.host().AllGather(&word, all.data(), 2, DType::kInt32)->Wait();
  // What ended a group on GPUs has ended this exchange as well.
  if (!status.ok() && communicator_.device_type() == DeviceType::kCuda) {
    const absl::Status error = communicator_.error();
    return error.ok() ? status : error;
  }
  if (!status.ok()) return status;
  Round round;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].divides_by_initial != all[0].divides_by_initial) {
      return End(absl::StrCat("Join: divide_by_initial_world_size is ",
                              all[0].divides_by_initial != 0 ? "true" : "false", " on rank 0 and ",
                              all[0].divides_by_initial != 0 ? "false" : "true", " on rank ",
                              rank));
    }
    const auto act = static_cast<JoinAct>(all[rank].act);
    if (act == JoinAct::kJoined) continue;
    if (round.active_count > 0 && act != round.act) {
      return End(absl::StrCat("Join: rank ", last_active_, " begins a ", NameOf(round.act),
                              " while rank ", rank, " begins a ", NameOf(act),
                              ": active ranks make the same calls in the same order"));
    }
    round.act = act;
    ++round.active_count;
    last_active_ = static_cast<int>(rank);
  }
  return round;
}

}  // namespace ddp::internal
