// A rank whose leaving ended the group: which one it was, and the note of it for the agent.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_LEFT_PEER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_LEFT_PEER_H_

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
  // `error_file` may be "": there is none to write. `rank` is this process's own in its group,
  // whose ranks are `job_ranks` in the job, by which the agent knows them; empty: the same.
  LeftPeerNote(std::string error_file, int rank, std::vector<int> job_ranks = {})
      : error_file_(std::move(error_file)), rank_(rank), job_ranks_(std::move(job_ranks)) {}

  // `status` without its mark. The first one with the mark of another rank is written, unless the
  // file is there already. Returns a quarter of a second after it is written, so that the rank that
  // left ends before this one; where the file system does not answer, two seconds later.
  absl::Status Told(absl::Status status);

 private:
  const std::string error_file_;
  const int rank_;
  const std::vector<int> job_ranks_;
  std::mutex mutex_;  // held while the file is written: who comes meanwhile may end the process
  bool has_told_ = false;  // guarded by mutex_
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_LEFT_PEER_H_
