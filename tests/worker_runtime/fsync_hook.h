// What a test does where the code under test calls fsync().
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_FSYNC_HOOK_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_FSYNC_HOOK_H_

#include <functional>
#include <string>

namespace ddp {

// Called with the path of each file that this process is about to write out; none: nothing is done.
std::function<void(const std::string& path)>& OnFsync();

}  // namespace ddp

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_FSYNC_HOOK_H_
