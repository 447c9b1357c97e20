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
  kAsk,      // --preempt_signal: ask the workers to save and stop
  kSuspend,  // TSTP: WorkerGroup::Suspend, then SuspendSelf
  kResume,   // CONT: WorkerGroup::Resume
};

inline constexpr Duration kWitnessWindow = std::chrono::milliseconds(20);

struct ReceivedSignal {
  SignalMeaning meaning{};
  int signal = 0;
  pid_t sender = 0;  // 0: the kernel, such as ^C at the terminal, or a process we cannot see
  // Whoever sent it may have sent it to the workers, too: Slurm to all of a step, systemd to all of
  // a service. Guardian::HasReceived, of a signal to all, tells it after kWitnessWindow.
  bool may_be_for_all = false;
};

// Decides what a signal means. [pure]
class SignalClassifier {
 public:
  // `more_stop_signals` mean kStop too, and `ask_signal` (0: none) means kAsk, whatever else they
  // would mean; but a second TERM stops.
  explicit SignalClassifier(SignalBits more_stop_signals = 0, int ask_signal = 0)
      : more_stop_signals_(more_stop_signals), ask_signal_(ask_signal) {}

  // Nothing when the signal is an echo: timeout(1) and others signal the process and then its whole
  // group, so that one intent arrives twice; the same signal of the same sender within kEchoWindow
  // of the first counts once. Nobody presses ^C twice that fast. REQUIRES: `signal` is one of
  // AgentSignals().
  std::optional<SignalMeaning> Classify(int signal, pid_t sender, TimePoint now);

  static constexpr Duration kEchoWindow = std::chrono::milliseconds(20);

 private:
  struct First {
    int signal;
    pid_t sender;
    TimePoint at;
  };
  static bool IsEcho(const std::optional<First>& first, const First& again);

  const SignalBits more_stop_signals_;
  const int ask_signal_;
  std::optional<First> first_ask_;
  std::optional<First> first_stop_;
};

// Receives the signals that PrepareAgentProcess(), given both `more_stop_signals` and `ask_signal`,
// has blocked, until destroyed. `handler` runs on the io_context's thread.
//
// Not everybody who reaches the guardian means all: `pkill ddprun` finds agent and guardian by
// their name. So only an ancestor of ours may mean all, as a manager's daemon is one, or a sender
// outside of our pid namespace.
class SignalReceiver {
 public:
  using Handler = std::function<void(const ReceivedSignal&)>;
  SignalReceiver(boost::asio::io_context& io, const ProcessBaseline& baseline,
                 SignalBits more_stop_signals, int ask_signal, Handler handler);
  SignalReceiver(const SignalReceiver&) = delete;
  SignalReceiver& operator=(const SignalReceiver&) = delete;

 private:
  void Await();
  void ReadAll();

  const Handler handler_;
  boost::asio::posix::stream_descriptor descriptor_;
  SignalClassifier classifier_;
};

// Stops this process until SIGCONT, as the default action of SIGTSTP would. SIGCONT then arrives as
// kResume.
void SuspendSelf();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_SIGNALS_H_
