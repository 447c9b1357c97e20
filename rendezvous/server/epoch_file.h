// The number of a coordinator's start, kept on disk so that it grows from start to start.
#ifndef DDPRUN_RENDEZVOUS_SERVER_EPOCH_FILE_H_
#define DDPRUN_RENDEZVOUS_SERVER_EPOCH_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/ids.h"

namespace ddprun::rendezvous {

// Takes the next epoch and keeps it in `run_dir`/epoch (written beside it, fsync'ed, renamed)
// before returning. A first, lost or damaged file starts from the time of day in microseconds:
// starts are never a microsecond apart, so this is above every epoch that was counted up from an
// earlier time. Where the clock went back meanwhile, joins of re-attaching agents raise the epoch
// (the machine). Makes `run_dir` when missing; an empty one keeps nothing. An error names the file
// that could not be written.
absl::StatusOr<Epoch> NextEpoch(const std::string& run_dir);

// The job is over: no coordinator of it will be started again. Removes the file, and `run_dir`
// unless something else is in it. What cannot be removed stays, which harms nobody.
// REQUIRES: the caller still holds the port, so that no coordinator after it has written there.
void ForgetEpoch(const std::string& run_dir);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EPOCH_FILE_H_
