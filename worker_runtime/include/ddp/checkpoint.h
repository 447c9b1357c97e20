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

// A named array in the caller's host memory: parameters, and what the optimizer keeps.
struct Tensor {
  std::string name;
  void* data = nullptr;
  size_t count = 0;  // elements
  DType dtype = DType::kFloat32;
};

// XXH3 (128 bits) over the tensors' bytes in the given order, as 32 lower-case hexadecimal digits.
// Equal for equal weights, whatever the tensors are called; it is no proof against forgery.
std::string ChecksumHex(std::span<const Tensor> tensors);

// Everything else that a run needs to go on as if nothing had happened.
struct TrainingState {
  int64_t step = 0;  // optimizer steps done
  SamplerState sampler;
  std::map<std::string, std::string> extra;  // the caller's own: random generators, statistics
};

struct CheckpointOptions {
  std::string directory;  // made when it does not exist; rank 0 must reach it, no other need
  int keep = 3;           // files kept, at least 1
};

// Rank 0 writes, every rank loads the same. A file appears under its name only when all of it is on
// disk (temporary file, fsync, rename, fsync of the directory) and ends with its checksum, so that
// a crash at any moment leaves the previous one in place, and damage is noticed. Nothing in it
// depends on the number of ranks. Of several that save in one directory only the one that began
// last may go on, so that a rank 0 which was cut off from its job does not put its state before
// that of the job's next round: the file `.writer-<n>` says which. It is looked at before a file
// gets its name, and the moment between is not covered. Call CheckWritable() at the start: who has
// never saved begins by its first Save, however late. Used by one thread; borrows the communicator.
class Checkpoint {
 public:
  // REQUIRES: options.keep >= 1.
  Checkpoint(Communicator& communicator, CheckpointOptions options);

  // Rank 0 makes the directory and tries to write in it, so that a long run does not find out at
  // its first Save; on other ranks nothing happens. Errors name the file, the call and errno;
  // FailedPrecondition as Save's.
  absl::Status CheckWritable();

  // For a run that begins anew. Rank 0 moves the checkpoints that it finds in the directory to
  // `<directory>/earlier-<n>`, where no LoadLatest of this directory finds them, the run record
  // (run_record.h) with them, and returns that folder; nothing where there was none, and on other
  // ranks. It saves, as far as others go. Errors as above.
  absl::StatusOr<std::optional<std::string>> SetEarlierAside();

  // Rank 0 writes `checkpoint-<sequence>-step-<step>.ckpt` and then removes all but the newest
  // `keep`; on other ranks nothing happens. Errors name the file, the call and errno;
  // FailedPrecondition when another has begun to save there since; InvalidArgument when names and
  // `state.extra` are more than 64 MiB.
  absl::Status Save(const TrainingState& state, std::span<const Tensor> tensors);

  // Collective. Fills the tensors of every rank from the newest checkpoint whose checksum is right
  // and returns its state; nothing where there is no checkpoint. Files that were passed over are
  // in refused(). Errors, the same on all ranks: with all tensors untouched DataLoss when there are
  // checkpoints and all are damaged, and FailedPrecondition when the newest good one holds other
  // names, sizes or types than `tensors`, or an earlier version wrote it; what the file system or
  // the communicator says, then with some tensors filled where that came on the way.
  absl::StatusOr<std::optional<TrainingState>> LoadLatest(std::span<const Tensor> tensors);

  // The file last saved (rank 0) or loaded (all ranks); empty before.
  const std::string& latest() const { return latest_; }
  // One sentence for each file that the last LoadLatest passed over: which and why.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  struct Found;
  // That nobody has begun to save after this one, which begins by its first call.
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
