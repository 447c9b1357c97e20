// A JSON line for every step, in the file of --step_log.
#ifndef DDPRUN_EXAMPLES_TRAIN_STEP_LOG_H_
#define DDPRUN_EXAMPLES_TRAIN_STEP_LOG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace train {

// Whether lines can be added to it, found out before the first; makes the file.
absl::Status CheckStepLog(const std::string& path);
// The line is in the file when this returns Ok.
absl::Status AddToStepLog(const std::string& path, int64_t step, double loss);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_STEP_LOG_H_
