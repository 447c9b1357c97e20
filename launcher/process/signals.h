// The signals the agent receives, as events on its io_context.
#ifndef DDPRUN_LAUNCHER_PROCESS_SIGNALS_H_
#define DDPRUN_LAUNCHER_PROCESS_SIGNALS_H_

#include <sys/types.h>

#include <functional>
#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/process/process_baseline.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// What a signal asks of the agent.
enum class SignalMeaning {
  kStop,     // INT, TERM, HUP, QUIT, and what --signals_to_handle adds: stop the job
  kKillNow,  // a further INT or TERM
  kRelay,    // USR1, USR2: WorkerGroup::Relay
  kSuspend,  // TSTP: WorkerGroup::Suspend, then SuspendSelf
  kResume,   // CONT: WorkerGroup::Resume
};

struct ReceivedSignal {
  SignalMeaning meaning{};
  int signal = 0;
  pid_t sender = 0;  // 0: the kernel, such as ^C at the terminal
};

// Decides what a signal means. [pure]
class SignalClassifier {
 public:
  // `more_stop_signals` mean kStop too, whatever else they would mean.
  explicit SignalClassifier(SignalBits more_stop_signals = 0)
      : more_stop_signals_(more_stop_signals) {}

  // Nothing when the signal is an echo: timeout(1) and others signal the process and then its whole
  // group, so that one intent arrives twice; the same signal of the same sender within kEchoWindow
  // of the first counts once. Nobody presses ^C twice that fast. REQUIRES: `signal` is one of
  // AgentSignals().
  std::optional<SignalMeaning> Classify(int signal, pid_t sender, TimePoint now);

  static constexpr Duration kEchoWindow = std::chrono::milliseconds(20);

 private:
  struct FirstStop {
    int signal;
    pid_t sender;
    TimePoint at;
  };

  const SignalBits more_stop_signals_;
  std::optional<FirstStop> first_stop_;
};

// Receives the signals that PrepareAgentProcess(), given the same `more_stop_signals`, has blocked,
// until destroyed. `handler` runs on the io_context's thread.
class SignalReceiver {
 public:
  SignalReceiver(boost::asio::io_context& io, const ProcessBaseline& baseline,
                 SignalBits more_stop_signals, std::function<void(const ReceivedSignal&)> handler);
  SignalReceiver(const SignalReceiver&) = delete;
  SignalReceiver& operator=(const SignalReceiver&) = delete;

 private:
  void Await();
  void ReadAll();

  const std::function<void(const ReceivedSignal&)> handler_;
  boost::asio::posix::stream_descriptor descriptor_;
  SignalClassifier classifier_;
};

// Stops this process until SIGCONT, as the default action of SIGTSTP would. SIGCONT then arrives as
// kResume.
void SuspendSelf();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SIGNALS_H_
