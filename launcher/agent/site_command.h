// --on-bad-node: the site's own program, which may cordon a host.
#ifndef DDPRUN_LAUNCHER_AGENT_SITE_COMMAND_H_
#define DDPRUN_LAUNCHER_AGENT_SITE_COMMAND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/mailbox.h"

namespace ddprun::launcher {

// Runs the command with a host and a reason, one after the other, on a thread of its own. Each has
// a minute.
class SiteCommand {
 public:
  // `say` is told what came of it, on that thread, until this object goes; must not block.
  SiteCommand(std::string command, std::vector<std::string> environment,
              std::function<void(const std::string&)> say);
  // Any thread; never waits. The destructor waits 5 s at most for what was asked.
  void Run(const std::string& host, const std::string& reason) const;

 private:
  const std::string command_;
  const std::vector<std::string> environment_;
  const std::shared_ptr<const std::function<void(const std::string&)>> say_;  // gone: not told
  const HelperThread thread_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_SITE_COMMAND_H_
