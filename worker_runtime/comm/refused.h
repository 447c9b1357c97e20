// What the machine refused, in words that name the limit.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_REFUSED_H_
#define DDPRUN_WORKER_RUNTIME_COMM_REFUSED_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddp::internal {

// "Too many open files (EMFILE): this process may have 1024 (ulimit -n)"; other errors alone.
std::string RefusedText(int error);

// Of a system call that failed with `error`: ResourceExhausted where a limit is reached, otherwise
// Internal. "<what>: <RefusedText>".
absl::Status Refused(absl::string_view what, int error);

// Of a thread that could not be started.
absl::Status NoThread(absl::string_view what);

// Of memory that could not be had, where std::bad_alloc is caught.
absl::Status NoMemory(absl::string_view what);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_REFUSED_H_
