// A rank whose leaving ended the group: which one it was, and the note of it for the agent.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_LEFT_PEER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_LEFT_PEER_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace ddp::internal {

// Engines mark an error that another rank caused: its process ended, it left the group while the
// others went on, or it aborted the group. A rank that only stays away has caused nothing that is
// known. The mark travels with the error to the other ranks and never reaches the program.
absl::Status WithLeftPeer(absl::Status status, std::optional<int> rank);
// The rank of the mark; nullopt without one.
std::optional<int> LeftPeerOf(const absl::Status& status);

// The rank that such a note, the text of one that LeftPeerNote wrote, names; nullopt in other
// texts.
std::optional<int> LeftPeerOfNote(std::string_view text);

// Tells the agent that this process is about to end because a peer left, so that its end is not
// taken for the cause: by the file of TORCHELASTIC_ERROR_FILE, in the format of PyTorch's @record
// with one more member, extraInfo.left_peer. A process that goes on and ends with 0 has succeeded
// all the same: the agent reads the files of failed workers. Any thread.
class LeftPeerNote {
 public:
  // The process of a rank of the group where it is one of this machine; 0: it is not, or is not
  // known.
  using ProcessOf = std::function<pid_t(int rank)>;
  // Of all of Told().
  static constexpr std::chrono::milliseconds kPatience{2000};

  // `error_file` may be "": there is none to write. `rank` is this process's own in its group,
  // whose ranks are `job_ranks` in the job, by which the agent knows them; empty: the same.
  // `process_of` may be null: no process is known.
  LeftPeerNote(std::string error_file, int rank, std::vector<int> job_ranks = {},
               ProcessOf process_of = nullptr)
      : error_file_(std::move(error_file)),
        rank_(rank),
        job_ranks_(std::move(job_ranks)),
        process_of_(std::move(process_of)) {}

  // `status` without its mark. The first one with the mark of another rank is written, unless the
  // file is there already. Returns a quarter of a second after it is written, so that the rank that
  // left ends before this one, and where its process is known not before that has ended; after
  // kPatience in any case. A peer that has left its group, in order or by an abort, and lives on
  // costs all of that, once: nothing tells it from one whose end has begun.
  absl::Status Told(absl::Status status);

 private:
  const std::string error_file_;
  const int rank_;
  const std::vector<int> job_ranks_;
  const ProcessOf process_of_;
  std::mutex mutex_;       // held until the agent is told: who comes meanwhile may end the process
  bool has_told_ = false;  // guarded by mutex_
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_LEFT_PEER_H_
