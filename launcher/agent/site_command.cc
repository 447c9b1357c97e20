#include "launcher/agent/site_command.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/health_check.h"
#include "launcher/dump/tool_run.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);
// At the end of ddprun, which nothing interrupts then.
constexpr Duration kLast = std::chrono::seconds(5);

std::string Outcome(const ToolRun& run) {
  if (!run.start_error.empty()) return "could not be started: " + run.start_error;
  if (run.is_late) return "did not end within 60 s and was killed";
  if (run.is_cut) return "wrote more than 256 KiB and was killed";
  return run.end.is_success() ? "" : absl::StrCat("failed: ", ToString(run.end));
}

}  // namespace

SiteCommand::SiteCommand(std::string command, std::vector<std::string> environment,
                         std::function<void(const std::string&)> say)
    : command_(std::move(command)),
      environment_(std::move(environment)),
      say_(std::make_shared<const std::function<void(const std::string&)>>(std::move(say))),
      thread_(kLast, SteadyClock()) {}

void SiteCommand::Run(const std::string& host, const std::string& reason) const {
  if (!thread_.is_running()) {
    return (*say_)(absl::StrCat("warning: --on-bad-node for host ", EscapeControl(host),
                                " was not run: the system has no thread left"));
  }
  thread_.Post([argv = ShellArgv(command_, {host, reason}), environment = environment_,
                weak = std::weak_ptr(say_), host = EscapeControl(host)] {
    const ToolRun run = RunTool(argv, environment, SteadyNow() + kLimit, SteadyClock());
    const std::string trouble = Outcome(run);
    const std::string line = LastLineOf(run.out);
    const auto say = weak.lock();
    if (say == nullptr) return;
    (*say)(absl::StrCat(trouble.empty() ? "" : "warning: ", "--on-bad-node for host ", host, " ",
                        trouble.empty() ? "has run" : trouble, line.empty() ? "" : ": ", line));
  });
}

}  // namespace ddprun::launcher
