// One checkpoint file: durable writing, verified reading.
#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_FILE_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_FILE_H_

#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/checkpoint.h"

namespace ddp::internal {

// Writes `directory/name` so that it is either complete and durable or, after an error or a crash,
// as it was before. Its name appears only if `may_commit` says Ok when all else is done. Errors
// name the path, the call and errno; InvalidArgument for a header that reading would refuse.
absl::Status WriteCheckpointFile(const std::string& directory, const std::string& name,
                                 const TrainingState& state, std::span<const Tensor> tensors,
                                 const std::function<absl::Status()>& may_commit);

// Writes a small temporary file into `directory` and removes it. Errors name it, the call and
// errno.
absl::Status TryCheckpointFile(const std::string& directory);

// Reads a file into `tensors`, which stay untouched unless its checksum is right and it holds
// exactly these names, sizes and types. Errors start with the path: DataLoss for a damaged file,
// FailedPrecondition for one of another model, otherwise the call and errno.
absl::StatusOr<TrainingState> ReadCheckpointFile(const std::string& path,
                                                 std::span<const Tensor> tensors);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_FILE_H_
