// The program that checks this node (--health-check), on a thread of its own.
#ifndef DDPRUN_LAUNCHER_AGENT_HEALTH_CHECK_H_
#define DDPRUN_LAUNCHER_AGENT_HEALTH_CHECK_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/file_thread.h"
#include "launcher/dump/tool_run.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/bad_nodes.h"

namespace ddprun::launcher {

struct HealthProgram {
  std::vector<std::string> argv;  // argv[0] is a path
  std::vector<std::string> environment;
  Duration limit{0};
};

// What a shell runs as `command`: stderr comes in line with stdout. Words of `more` are appended to
// the command, each as it is.
std::vector<std::string> ShellArgv(const std::string& command,
                                   const std::vector<std::string>& more = {});

// The last line in which something stands, escaped and cut; "": there is none.
std::string LastLineOf(const std::string& text);

// 0 is healthy, 1 is bad, and all else no result.
rendezvous::HealthReport HealthOf(const ToolRun& run, Duration limit);

// One check at a time. Used on the io_context's thread alone, which never waits for it.
class HealthCheck {
 public:
  using Done = std::function<void(const rendezvous::HealthReport&)>;

  HealthCheck(boost::asio::io_context& io, HealthProgram program);
  // `done` gets the result on the io_context's thread, unless the check is stopped. Stops one that
  // is under way.
  void Start(Done done);
  // Kills the program. Idempotent.
  void Stop();
  bool is_idle() const { return thread_.is_idle(); }

 private:
  // Shared with the thread's work.
  struct Run {
    UniqueFd cancel;
    bool is_stopped = false;
  };

  const HealthProgram program_;
  FileThread thread_;
  std::shared_ptr<Run> run_;  // the newest; null: none yet
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_HEALTH_CHECK_H_
