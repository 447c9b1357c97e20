// Ranks that are threads of the test: communicators without sockets or shared memory.
#ifndef DDPRUN_TESTS_SUPPORT_THREAD_GROUP_H_
#define DDPRUN_TESTS_SUPPORT_THREAD_GROUP_H_

#include <functional>
#include <memory>
#include <vector>

#include "ddp/communicator.h"

namespace ddprun::testing {

class ThreadGroupState;

// `world_size` communicators, one per rank. Sums in the canonical order (float32 and wider types
// only), executes on a thread per rank, fails all ranks when their calls do not match. Waits end
// after 30 s.
class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Valid until the group is destroyed.
  ddp::Communicator& communicator(int rank);

  // Runs `body` for every rank on a thread of its own and waits for all.
  void Run(const std::function<void(ddp::Communicator&)>& body);

 private:
  std::shared_ptr<ThreadGroupState> state_;  // shared with the communicators' threads
  std::vector<std::unique_ptr<ddp::Communicator>> communicators_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_THREAD_GROUP_H_
