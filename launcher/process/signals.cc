#include "launcher/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {

using boost::asio::posix::stream_descriptor;

std::optional<SignalMeaning> SignalClassifier::Classify(int signal, pid_t sender, TimePoint now) {
  constexpr SignalBits kStops = BitOf(SIGINT) | BitOf(SIGTERM) | BitOf(SIGHUP) | BitOf(SIGQUIT);
  if (((kStops | more_stop_signals_) & BitOf(signal)) == 0) {
    if (signal == SIGTSTP) return SignalMeaning::kSuspend;
    if (signal == SIGCONT) return SignalMeaning::kResume;
    DDP_CHECK(signal == SIGUSR1 || signal == SIGUSR2);  // AgentSignals() names no other
    return SignalMeaning::kRelay;
  }
  if (!first_stop_) {
    first_stop_ = FirstStop{signal, sender, now};
    return SignalMeaning::kStop;
  }
  const bool is_echo = signal == first_stop_->signal && sender == first_stop_->sender &&
                       sender != 0 && now - first_stop_->at < kEchoWindow;
  if (is_echo) return std::nullopt;
  // A closing terminal sends several HUPs; they are one wish.
  return signal == SIGINT || signal == SIGTERM ? SignalMeaning::kKillNow : SignalMeaning::kStop;
}

SignalReceiver::SignalReceiver(boost::asio::io_context& io, const ProcessBaseline& baseline,
                               SignalBits more_stop_signals,
                               std::function<void(const ReceivedSignal&)> handler)
    : handler_(std::move(handler)), descriptor_(io), classifier_(more_stop_signals) {
  boost::system::error_code error;
  descriptor_.assign(OpenSignalFd(AgentSignals(baseline, more_stop_signals)).Release(), error);
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
    if (meaning) handler_(ReceivedSignal{*meaning, signal, sender});
  }
}

void SuspendSelf() { kill(getpid(), SIGSTOP); }

}  // namespace ddprun::launcher
