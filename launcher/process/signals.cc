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

std::optional<SignalMeaning> SignalClassifier::Classify(int signal, pid_t sender,
                                                        bool is_of_terminal, TimePoint now) {
  const Order received{signal, sender, now};
  if (signal == ask_signal_) {
    if (IsEcho(last_ask_, received)) return std::nullopt;
    // Slurm and others say TERM when the time is over, too.
    const bool is_first = !last_ask_ && !last_stop_;
    const bool is_passed_on = last_ask_ && !last_stop_ && now - last_ask_->at < kSameAsk;
    if (signal != SIGTERM || is_first || is_passed_on) {
      if (!is_passed_on || signal != SIGTERM) last_ask_ = received;
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
  if (IsEcho(last_stop_, received)) return std::nullopt;
  last_stop_ = received;
  if (is_of_terminal && signal == SIGINT) ++interrupts_;
  if (first_stop_) return ClassifyFurther(signal, is_of_terminal, now);
  first_stop_ = received;
  orders_ = 1;
  return SignalMeaning::kStop;
}

SignalMeaning SignalClassifier::ClassifyFurther(int signal, bool is_of_terminal, TimePoint now) {
  // A closing terminal sends several HUPs, and Slurm warns with one signal and then the next.
  if (signal != SIGINT && signal != SIGTERM && signal != SIGQUIT) return SignalMeaning::kAgain;
  const bool is_of_person = interrupts_ >= 2 || (signal == SIGQUIT && is_of_terminal);
  const bool is_quit = signal == SIGQUIT && first_stop_->signal != SIGQUIT;
  const bool is_third = ++orders_ >= 3 && now - first_stop_->at >= kSameOrder;
  return is_third || is_of_person || is_quit ? SignalMeaning::kKillNow : SignalMeaning::kAgain;
}

bool SignalClassifier::IsEcho(const std::optional<Order>& last, const Order& again) {
  return last && last->signal == again.signal && last->sender == again.sender &&
         again.sender != 0 && again.at - last->at < kEchoWindow;
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
    const std::optional<SignalMeaning> meaning =
        classifier_.Classify(signal, sender, !is_from_process, SteadyNow());
    if (!meaning) continue;
    const bool may_be_for_all = is_from_process && (sender == 0 || IsAncestor(sender));
    handler_(ReceivedSignal{.meaning = *meaning,
                            .signal = signal,
                            .sender = sender,
                            .is_of_terminal = !is_from_process,
                            .may_be_for_all = may_be_for_all});
  }
}

void SuspendSelf() { kill(getpid(), SIGSTOP); }

}  // namespace ddprun::launcher
