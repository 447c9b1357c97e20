// PyTorch's countdown timers (torch.distributed.elastic.timer): workers write what they begin and
// end into a FIFO that the agent made; a worker that has not ended it in time is killed. The job
// then goes the way of any failure: torchrun kills its agent as well.
//
// Lives on the io_context's thread. Whatever stands in the FIFO: only a process of this agent's own
// workers, or below them, is ever signalled.
#ifndef DDPRUN_LAUNCHER_AGENT_FILE_TIMERS_H_
#define DDPRUN_LAUNCHER_AGENT_FILE_TIMERS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/agent/timer_request.h"
#include "launcher/cli/environment.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::launcher {

// Where the FIFO stands, if this agent is to make one: TORCHELASTIC_ENABLE_FILE_TIMER=1 asks for
// it. TORCHELASTIC_TIMER_FILE names the path, except below another ddprun: there it is that one's.
std::optional<std::string> TimerFileOf(const Environment& environment);

class FileTimers {
 public:
  struct Handlers {
    std::function<void(const std::string& line)> say;
    // A timer has expired; `is_kill`: its process has just been signalled.
    std::function<void(const TimerRequest& timer, bool is_kill)> expired;
  };

  // Makes the FIFO. An error is this machine's and one line.
  static absl::StatusOr<std::unique_ptr<FileTimers>> Open(boost::asio::io_context& io,
                                                          const std::string& path,
                                                          Handlers handlers);
  // Removes the FIFO.
  ~FileTimers();
  FileTimers(const FileTimers&) = delete;
  FileTimers& operator=(const FileTimers&) = delete;

  const std::string& path() const;
  // A worker lives from here on, until it is gone.
  void WorkerRuns(int pid);
  // "; its timer 'x' had expired" when that is why it ended, else "".
  std::string WorkerIsGone(int pid);

 private:
  class Impl;
  explicit FileTimers(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_FILE_TIMERS_H_
