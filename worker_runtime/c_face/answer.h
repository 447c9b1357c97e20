// Calls functions of the program's own, and takes what they answer.
#ifndef DDPRUN_WORKER_RUNTIME_C_FACE_ANSWER_H_
#define DDPRUN_WORKER_RUNTIME_C_FACE_ANSWER_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "ddp/c.h"

namespace ddp::internal {

// Calls `function`, which returns its code, and returns the value that it has answered. An error's
// words begin with `call`. What the function throws ends here, as the thread may be one of ours.
absl::StatusOr<std::string> Answered(const std::string& call,
                                     const std::function<ddp_code(ddp_answer*)>& function);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_C_FACE_ANSWER_H_
