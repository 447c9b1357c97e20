#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_policy.h"
#include "launcher/agent/node_identity.h"
#include "launcher/agent/site_command.h"
#include "launcher/cli/text.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/terminal.h"
#include "launcher/commands/trust.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/process_baseline.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/net/peer_user.h"
#include "rendezvous/server/coordinator.h"
#include "rendezvous/wire/hello.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Coordinator;
using rendezvous::Verdict;
using Identity = std::shared_ptr<const rendezvous::TlsIdentity>;

constexpr int64_t kOwnDescriptors = 64;

void Tell(const std::string& text) {
  std::fprintf(stderr, "ddprun: coordinator: %s\n", text.c_str());
}

// A descriptor that is readable when one of the signals that end it has come; they are blocked from
// now on, in every thread. SIGHUP stays ignored where it was (nohup).
absl::StatusOr<UniqueFd> TakeSignals(const ProcessBaseline& baseline) {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if ((baseline.ignored_signals & BitOf(signal)) == 0) sigaddset(&ending, signal);
  }
  DDP_CHECK(pthread_sigmask(SIG_BLOCK, &ending, nullptr) == 0);
  std::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(signalfd(-1, &ending, SFD_CLOEXEC));
  if (fd.is_open()) return fd;
  return absl::ErrnoToStatus(errno, "signalfd");
}

void Announce(const CoordinatorOptions& options, uint16_t port, bool has_secret) {
  const std::string& host = options.bind.host;
  const bool is_everywhere = host.empty() || host == "::" || host == "0.0.0.0";
  Tell(absl::StrCat(
      "listening on ", EndpointText(host.empty() ? "::" : host, port), " for ",
      options.run_id.empty() ? std::string("the first run that joins")
                             : absl::StrCat("the run \"", EscapeControl(options.run_id), "\""),
      "; agents reach it by --rdzv-endpoint=", EndpointText(is_everywhere ? "HOST" : host, port)));
  if (!rendezvous::IsLoopback(host)) return Tell(TrustText(has_secret));
  const bool is_guarded = has_secret || rendezvous::PeerUsers().DoesKernelTell();
  if (!is_guarded) Tell(absl::StrCat("warning: ", kNobodyKnownText));
}

// For the run that it serves, or for any: without a run id it serves the first one that joins.
absl::StatusOr<Identity> ReadIdentity(const CoordinatorOptions& options,
                                      const Environment& environment) {
  absl::StatusOr<Identity> identity = IdentityOf(options.trust, environment.token);
  if (!identity.ok() || *identity == nullptr) return identity;
  for (const std::string& warning : (*identity)->warnings()) Tell("warning: " + warning);
  if (options.run_id.empty()) return identity;
  return rendezvous::TlsIdentity::ForRun(*identity, rendezvous::GreetedRunId(options.run_id));
}

int ComplainOfStart(const absl::Status& status) {
  const absl::Status error(status.code(), absl::StrCat("coordinator: ", status.message()));
  if (absl::IsInvalidArgument(status)) return Complain(error, kExitUsage);
  const bool is_address = absl::IsAlreadyExists(status) || absl::IsUnavailable(status);
  return Complain(error, is_address ? kExitRendezvous : kExitMachine);
}

int ComplainOfIdentity(const absl::Status& status) {
  return Complain(absl::Status(status.code(), absl::StrCat("coordinator: ", status.message())),
                  kExitAuthentication);
}

absl::Status ProvideDescriptors() {
  const DescriptorRoom room = ReserveDescriptors(kOwnDescriptors);
  if (room.limit - room.taken >= kOwnDescriptors) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the limit on open files is ", room.limit, ", and ", room.taken, " are open already: ",
      kOwnDescriptors, " more are needed, and three for each node; raise the limit (ulimit -n)"));
}

// Waits until one of the two can be read. The number of the signal that came; nullopt: the job is
// over.
std::optional<int> WaitForEnd(const UniqueFd& signals, const UniqueFd& finished) {
  std::array<pollfd, 2> fds = {pollfd{finished.get(), POLLIN, 0}, pollfd{signals.get(), POLLIN, 0}};
  // Without a deadline: the machine has one for everything but the first node's coming.
  while (poll(fds.data(), fds.size(), -1) < 0) DDP_CHECK(errno == EINTR);
  if (fds[0].revents != 0) return std::nullopt;
  signalfd_siginfo info{};
  DDP_CHECK(read(signals.get(), &info, sizeof(info)) == sizeof(info));
  return static_cast<int>(info.ssi_signo);
}

// `signal`: what ended it, if the job did not. Returns the exit code.
int TellOfEnd(const Coordinator& coordinator, std::optional<int> signal) {
  const std::optional<Verdict> verdict = coordinator.verdict();
  const std::string end =
      absl::StrCat("the job has ended with ", coordinator.exit_code(), verdict ? ": " : "",
                   verdict ? EscapeControl(verdict->reason) : "");
  if (!signal) {
    Tell(end);
    return coordinator.exit_code();
  }
  Tell(absl::StrCat(
      SignalName(*signal), ": stops serving; ",
      verdict ? end
      : !coordinator.has_job()
          ? "no node has joined"
          : "workers go on, and so does the job if a coordinator starts again on this address "
            "in time"));
  return kExitSignalBase + *signal;
}

}  // namespace

int RunCoordinator(const CoordinatorOptions& options, const Environment& environment,
                   ProcessBaseline baseline) {
  absl::StatusOr<Identity> identity = ReadIdentity(options, environment);
  if (!identity.ok()) return ComplainOfIdentity(identity.status());
  const bool has_secret = *identity != nullptr;
  ProtectFromOomKiller(baseline);
  if (absl::Status status = ProvideDescriptors(); !status.ok()) return ComplainOfStart(status);
  // A file system that does not answer is waited for while signals still end this process.
  // A successor finds the file by the port and the run, which it must know from its command line.
  const bool has_file = options.bind.port != 0 && !options.run_id.empty();
  const std::string run_dir = has_file ? RunDirectory(options.run_id, options.bind.port) : "";
  const absl::StatusOr<UniqueFd> signals = TakeSignals(baseline);
  if (!signals.ok()) return ComplainOfStart(signals.status());
  const UniqueFd finished(eventfd(0, EFD_CLOEXEC));
  if (!finished.is_open()) return ComplainOfStart(absl::ErrnoToStatus(errno, "eventfd"));

  Coordinator::Options start;
  start.run_id = options.run_id;
  start.identity = *std::move(identity);
  start.is_apart = true;
  start.listen = Coordinator::Listen{.host = options.bind.host, .port = options.bind.port};
  start.is_for_own_user = !options.bind.host.empty() && rendezvous::IsLoopback(options.bind.host);
  start.run_dir = run_dir;
  start.on_file_lost = [](const std::string& why) { Tell("warning: " + why); };
  start.on_refused = [](const std::string& whom) { Tell("warning: " + whom); };
  std::optional<SiteCommand> site;
  if (!options.on_bad_node.empty()) {
    site.emplace(options.on_bad_node, environment.variables, Tell);
    start.on_bad_node = [&site](const std::string& host, const std::string& reason) {
      site->Run(host, reason);
    };
  }
  std::once_flag descriptors_told;
  start.on_no_descriptor = [&descriptors_told] {
    std::call_once(descriptors_told, Tell,
                   "no file descriptor is left for a connection, which waits until one is free; "
                   "raise the limit on open files (ulimit -n)");
  };
  start.on_finished = [&finished] { eventfd_write(finished.get(), 1); };
  const absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
      Coordinator::Start(std::move(start), SteadyClock());
  if (!coordinator.ok()) return ComplainOfStart(coordinator.status());
  Announce(options, (*coordinator)->port(), has_secret);
  if (has_file && run_dir.empty()) {
    Tell(
        "warning: no folder of this user's alone to keep the job's state in, below "
        "$XDG_RUNTIME_DIR "
        "or /tmp; when it is started again it knows only what its nodes still know");
  }
  if (const std::optional<Verdict> earlier = (*coordinator)->verdict()) {
    Tell(absl::StrCat(
        "the run had ended with ", earlier->exit_code,
        " before this start: ", EscapeControl(earlier->reason),
        "; its nodes have 10 s to hear of it, then it can be started for the next job"));
  }

  const std::optional<int> signal = WaitForEnd(*signals, finished);
  (*coordinator)->Stop();
  return TellOfEnd(**coordinator, signal);
}

}  // namespace ddprun::launcher
