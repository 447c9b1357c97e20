#include "launcher/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

using boost::asio::posix::stream_descriptor;

std::optional<SignalMeaning> SignalClassifier::MeaningBesideStop(int signal) const {
  if ((more_stop_signals_ & BitOf(signal)) != 0) return std::nullopt;
  switch (signal) {
    case SIGUSR1:
    case SIGUSR2:
      return SignalMeaning::kRelay;
    case SIGTSTP:
      return SignalMeaning::kSuspend;
    case SIGCONT:
      return SignalMeaning::kResume;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      return std::nullopt;
    default:
      DDP_CHECK(false && "a signal that AgentSignals() does not name");
  }
}

std::optional<SignalMeaning> SignalClassifier::Classify(int signal, pid_t sender, TimePoint now) {
  if (const auto meaning = MeaningBesideStop(signal)) return meaning;
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

class SignalReceiver::Impl {
 public:
  Impl(boost::asio::io_context& io, SignalBits wanted, SignalBits more_stop_signals,
       std::function<void(const ReceivedSignal&)> handler)
      : handler_(std::move(handler)), descriptor_(io), classifier_(more_stop_signals) {
    sigset_t set;
    sigemptyset(&set);
    for (int signal = 1; signal < 32; ++signal) {
      if ((wanted & BitOf(signal)) != 0) sigaddset(&set, signal);
    }
    UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    DDP_CHECK(fd.is_open());
    boost::system::error_code error;
    descriptor_.assign(fd.Release(), error);
    DDP_CHECK(!error);
    Await();
  }

 private:
  void Await() {
    descriptor_.async_wait(stream_descriptor::wait_read, [this](boost::system::error_code error) {
      if (error == boost::asio::error::operation_aborted) return;
      ReadAll();
      Await();
    });
  }

  void ReadAll() {
    signalfd_siginfo info;
    // EAGAIN ends it: all pending signals have been read.
    while (read(descriptor_.native_handle(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      const bool is_from_process =
          info.ssi_code == SI_USER || info.ssi_code == SI_QUEUE || info.ssi_code == SI_TKILL;
      const pid_t sender = is_from_process ? static_cast<pid_t>(info.ssi_pid) : 0;
      const std::optional<SignalMeaning> meaning =
          classifier_.Classify(signal, sender, SteadyNow());
      if (!meaning) continue;
      handler_(ReceivedSignal{*meaning, signal, sender});
    }
  }

  const std::function<void(const ReceivedSignal&)> handler_;
  stream_descriptor descriptor_;
  SignalClassifier classifier_;
};

SignalReceiver::SignalReceiver(boost::asio::io_context& io, const ProcessBaseline& baseline,
                               SignalBits more_stop_signals,
                               std::function<void(const ReceivedSignal&)> handler)
    : impl_(std::make_unique<Impl>(io, AgentSignals(baseline, more_stop_signals), more_stop_signals,
                                   std::move(handler))) {}
SignalReceiver::~SignalReceiver() = default;

void SuspendSelf() { kill(getpid(), SIGSTOP); }

}  // namespace ddprun::launcher
