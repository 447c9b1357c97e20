// ProcessGroup::FromEnv(), also for a group beside the program's own.
#ifndef DDPRUN_WORKER_RUNTIME_GROUP_FROM_ENV_H_
#define DDPRUN_WORKER_RUNTIME_GROUP_FROM_ENV_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ddp/process_group.h"

namespace ddp::internal {

// `key_space` goes before all keys of the group, so that it and groups with another one know
// nothing of each other; "" is that of the program's own groups.
absl::StatusOr<std::unique_ptr<ProcessGroup>> GroupFromEnv(const ProcessGroupOptions& options,
                                                           const std::string& key_space);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GROUP_FROM_ENV_H_
