// Work on files that must not hold up the agent: a network file system may hang for ever.
#ifndef DDPRUN_LAUNCHER_AGENT_FILE_HELPER_H_
#define DDPRUN_LAUNCHER_AGENT_FILE_HELPER_H_

#include <functional>
#include <memory>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// The agent's thread calls it; each piece of work gets a thread of its own, of which one at most
// lives at a time. One that hangs is left behind: it ends with its call, or with the process.
class FileHelper {
 public:
  explicit FileHelper(Duration timeout) : timeout_(timeout) {}

  // Runs `work` and waits for it, at most `timeout`. False: it has not ended, or has not begun
  // because an earlier one still hangs.  REQUIRES: `work` owns what it touches, for as long as it
  // lasts, and the caller touches none of it after false.
  [[nodiscard]] bool Run(std::function<void()> work);

 private:
  struct Task;
  bool IsFree() const;

  const Duration timeout_;
  std::shared_ptr<Task> last_;  // with the thread that does it
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_FILE_HELPER_H_
