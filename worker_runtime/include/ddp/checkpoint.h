// Snapshots of a training run on disk.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_CHECKPOINT_H_
#define DDPRUN_WORKER_RUNTIME_DDP_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "ddp/distributed_sampler.h"
#include "ddp/dtype.h"

namespace ddp {

// A named array in the caller's host memory: parameters, and the optimizer's state.
struct Tensor {
  std::string name;
  void* data = nullptr;
  size_t count = 0;  // elements
  DType dtype = DType::kFloat32;
};

// XXH3 (128 bits) over the tensors' bytes in the given order, as 32 lower-case hexadecimal digits.
// Equal weights have equal checksums, whatever the tensors' names. It does not protect against
// forgery.
std::string ChecksumHex(std::span<const Tensor> tensors);

// Everything else that a run needs to continue as if it had not stopped.
struct TrainingState {
  int64_t step = 0;  // optimizer steps done
  SamplerState sampler;
  std::map<std::string, std::string> extra;  // the caller's own: random generators, statistics
};

struct CheckpointOptions {
  std::string directory;  // created if it does not exist; only rank 0 must reach it
  int keep = 3;           // files kept, at least 1
};

// Rank 0 writes, and every rank loads the same. A file gets its name only when it is complete on
// disk (temporary file, fsync, rename, fsync of the directory). It ends with its checksum. So a
// crash at any moment leaves the previous file in place, and damage is noticed. The contents do not
// depend on the number of ranks.
//
// If several runs save in one directory, only the one that began last may continue. So a rank 0
// that was cut off from its job does not put its state before that of the job's next round. The
// file `.writer-<n>` names the last one. Save reads it before a file gets its name. The moment
// between the two is not covered. Call CheckWritable() at the start: otherwise a run begins at its
// first Save, however late. One thread uses a Checkpoint, which borrows the communicator.
class Checkpoint {
 public:
  // REQUIRES: options.keep >= 1.
  Checkpoint(Communicator& communicator, CheckpointOptions options);

  // Rank 0 makes the directory and tries to write in it, so that a long run does not fail at its
  // first Save. Other ranks do nothing. Errors name the file, the call and errno.
  // FailedPrecondition as for Save.
  absl::Status CheckWritable();

  // Moves earlier checkpoints aside, for a run that starts from the beginning. Rank 0 moves those
  // in the directory to `<directory>/earlier-<n>`, with the run record (run_record.h), and returns
  // that folder. LoadLatest of this directory does not find them there. The call returns nothing on
  // other ranks, or if there was no checkpoint. Other runs see this call as a Save. Errors as
  // above.
  absl::StatusOr<std::optional<std::string>> SetEarlierAside();

  // Rank 0 writes `checkpoint-<sequence>-step-<step>.ckpt` and then removes all but the newest
  // `keep`. Other ranks do nothing. Errors name the file, the call and errno. FailedPrecondition if
  // another run has begun to save there since. InvalidArgument if names and `state.extra` exceed 64
  // MiB.
  absl::Status Save(const TrainingState& state, std::span<const Tensor> tensors);

  // Fills the tensors of every rank from the newest checkpoint with a right checksum, and returns
  // its state. Collective. Returns nothing if there is no checkpoint. The names of files that it
  // passed over are in refused(). Errors are the same on all ranks:
  // - DataLoss if there are checkpoints and all are damaged. All tensors are unchanged.
  // - FailedPrecondition if the newest good one holds other names, sizes or types than `tensors`,
  //   or if an earlier version wrote it. All tensors are unchanged.
  // - Errors of the file system or the communicator. If they come on the way, some tensors are
  //   filled.
  absl::StatusOr<std::optional<TrainingState>> LoadLatest(std::span<const Tensor> tensors);

  // The file last saved (rank 0) or loaded (all ranks). Empty before.
  const std::string& latest() const { return latest_; }
  // One sentence for each file that the last LoadLatest passed over: which file, and why.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  struct Found;
  // Checks that no other run has begun to save after this one, which begins by its first call.
  absl::Status CheckIsWriter();
  Found FindLatest(std::span<const Tensor> tensors);

  Communicator& communicator_;
  const CheckpointOptions options_;
  int64_t writer_ = 0;  // 0: has not begun to save
  std::string latest_;
  std::vector<std::string> refused_;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_CHECKPOINT_H_
