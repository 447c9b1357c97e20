#include "launcher/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "launcher/process/process.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {

using boost::asio::posix::stream_descriptor;

std::optional<SignalMeaning> SignalClassifier::Classify(int signal, pid_t sender, TimePoint now) {
  const First received{signal, sender, now};
  if (signal == ask_signal_) {
    if (IsEcho(first_ask_, received)) return std::nullopt;
    // Slurm and others say TERM when the time is over, too.
    if (signal != SIGTERM || (!first_ask_ && !first_stop_)) {
      first_ask_ = received;
      return SignalMeaning::kAsk;
    }
  }
  constexpr SignalBits kStops = BitOf(SIGINT) | BitOf(SIGTERM) | BitOf(SIGHUP) | BitOf(SIGQUIT);
  if (((kStops | more_stop_signals_) & BitOf(signal)) == 0) {
    if (signal == SIGTSTP) return SignalMeaning::kSuspend;
    if (signal == SIGCONT) return SignalMeaning::kResume;
    DDP_CHECK(signal == SIGUSR1 || signal == SIGUSR2);  // AgentSignals() names no other
    return SignalMeaning::kRelay;
  }
  if (!first_stop_) {
    first_stop_ = received;
    return SignalMeaning::kStop;
  }
  if (IsEcho(first_stop_, received)) return std::nullopt;
  // A closing terminal sends several HUPs; they are one wish.
  return signal == SIGINT || signal == SIGTERM ? SignalMeaning::kKillNow : SignalMeaning::kStop;
}

bool SignalClassifier::IsEcho(const std::optional<First>& first, const First& again) {
  return first && first->signal == again.signal && first->sender == again.sender &&
         again.sender != 0 && again.at - first->at < kEchoWindow;
}

SignalReceiver::SignalReceiver(boost::asio::io_context& io, const ProcessBaseline& baseline,
                               SignalBits more_stop_signals, int ask_signal, Handler handler)
    : handler_(std::move(handler)), descriptor_(io), classifier_(more_stop_signals, ask_signal) {
  const SignalBits more = more_stop_signals | (ask_signal != 0 ? BitOf(ask_signal) : 0);
  boost::system::error_code error;
  descriptor_.assign(OpenSignalFd(AgentSignals(baseline, more)).Release(), error);
  DDP_CHECK(!error);
  Await();
}

void SignalReceiver::Await() {
  descriptor_.async_wait(stream_descriptor::wait_read, [this](boost::system::error_code error) {
    if (error == boost::asio::error::operation_aborted) return;
    ReadAll();
    Await();
  });
}

void SignalReceiver::ReadAll() {
  signalfd_siginfo info;
  // EAGAIN ends it: all pending signals have been read.
  while (read(descriptor_.native_handle(), &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    const bool is_from_process =
        info.ssi_code == SI_USER || info.ssi_code == SI_QUEUE || info.ssi_code == SI_TKILL;
    const pid_t sender = is_from_process ? static_cast<pid_t>(info.ssi_pid) : 0;
    const std::optional<SignalMeaning> meaning = classifier_.Classify(signal, sender, SteadyNow());
    if (!meaning) continue;
    const bool may_be_for_all = is_from_process && (sender == 0 || IsAncestor(sender));
    handler_(ReceivedSignal{*meaning, signal, sender, may_be_for_all});
  }
}

void SuspendSelf() { kill(getpid(), SIGSTOP); }

}  // namespace ddprun::launcher
