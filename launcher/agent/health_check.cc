#include "launcher/agent/health_check.h"

#include <sys/eventfd.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Health;
using rendezvous::HealthReport;

// The check is killed at its limit, which takes a moment.
constexpr Duration kPatience = std::chrono::seconds(5);

std::string Cut(const std::string& line) {
  return line.substr(0, CharacterStart(line, rendezvous::kMaxHealthLineBytes));
}

HealthReport Report(Health health, const std::string& text) { return {health, Cut(text)}; }

}  // namespace

std::string LastLineOf(const std::string& text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const size_t before = text.find_last_of("\r\n", end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return Cut(EscapeControl(text.substr(begin, end - begin + 1)));
}

std::vector<std::string> ShellArgv(const std::string& command,
                                   const std::vector<std::string>& more) {
  // The command may end in a comment, so the line ends with it.
  std::vector<std::string> argv = {
      "/bin/sh", "-c", absl::StrCat("exec 2>&1\n", command, more.empty() ? "" : " \"$@\"", "\n"),
      "ddprun"};
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

HealthReport HealthOf(const ToolRun& run, Duration limit) {
  if (!run.start_error.empty()) {
    return Report(Health::kUnknown, absl::StrCat("it could not be started: ", run.start_error));
  }
  const std::string line = LastLineOf(run.out);
  const std::string said = line.empty() ? "" : absl::StrCat("; its last line: ", line);
  if (run.is_cut) return Report(Health::kUnknown, "it wrote more than 256 KiB" + said);
  if (run.is_late) {
    const auto seconds = std::chrono::duration<double>(limit).count();
    return Report(Health::kUnknown,
                  absl::StrCat("it did not end within ", seconds, " s (--health-timeout)", said));
  }
  if (run.end.is_success()) return Report(Health::kHealthy, line);
  if (run.end.exited && run.end.code == 1) return Report(Health::kBad, line);
  return Report(Health::kUnknown, absl::StrCat("its end: ", ToString(run.end), said));
}

HealthCheck::HealthCheck(boost::asio::io_context& io, HealthProgram program)
    : program_(std::move(program)), thread_(io, {}, program_.limit + kPatience) {}

void HealthCheck::Start(Done done) {
  Stop();
  run_ = std::make_shared<Run>();
  run_->cancel.Reset(eventfd(0, EFD_CLOEXEC));
  thread_.Ask<HealthReport>(
      "health check", "", program_.limit + kPatience,
      [run = run_, program = program_] {
        const ToolRun ended =
            RunTool(program.argv, program.environment, SteadyNow() + program.limit, SteadyClock(),
                    run->cancel.get());
        return HealthOf(ended, program.limit);
      },
      [run = run_, done = std::move(done)](const std::optional<HealthReport>& report) {
        if (run->is_stopped) return;
        done(report ? *report : Report(Health::kUnknown, "it cannot be killed"));
      });
}

void HealthCheck::Stop() {
  if (run_ == nullptr || std::exchange(run_->is_stopped, true)) return;
  eventfd_write(run_->cancel.get(), 1);
}

}  // namespace ddprun::launcher
