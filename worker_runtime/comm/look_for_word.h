// What another rank has left in the store, for who meanwhile waits for something else.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_LOOK_FOR_WORD_H_
#define DDPRUN_WORKER_RUNTIME_COMM_LOOK_FOR_WORD_H_

#include <optional>
#include <string>

#include "ddp/store.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

// What stands under `key`; nullopt: nothing, or the store does not answer. That costs about 2 s, or
// what is left until `deadline`. Asked on a connection made for it: the caller's own has the whole
// group's patience, and is lost by a question that nobody answers.
std::optional<std::string> LookForWord(const Store& store, const std::string& key,
                                       Clock::time_point deadline);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_LOOK_FOR_WORD_H_
