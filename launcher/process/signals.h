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
  kAgain,    // the same order once more: it shortens nothing
  kKillNow,  // a person's second ^C, QUIT after another stop, or a third INT, TERM, QUIT
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
  bool is_of_terminal = false;  // the kernel's: ^C or ^\\, or the terminal is gone
  // Whoever sent it may have sent it to the workers, too: Slurm to all of a step, systemd to all of
  // a service. Guardian::HasReceived, of a signal to all, tells it after kWitnessWindow.
  bool may_be_for_all = false;
};

// Decides what a signal means. One order often comes by several ways: the group gets it, and a
// front end such as `uv run` or timeout(1) passes it on. So a second one shortens nothing. [pure]
class SignalClassifier {
 public:
  // `more_stop_signals` mean kStop too, and `ask_signal` (0: none) means kAsk, whatever else they
  // would mean; but a second TERM stops, kSameAsk after the first.
  explicit SignalClassifier(SignalBits more_stop_signals = 0, int ask_signal = 0)
      : more_stop_signals_(more_stop_signals), ask_signal_(ask_signal) {}

  // Nothing when the signal is an echo: timeout(1) and others signal the process and then its whole
  // group; the same signal of the same sender within kEchoWindow counts once. `is_of_terminal`: the
  // kernel sent it. REQUIRES: `signal` is one of AgentSignals().
  std::optional<SignalMeaning> Classify(int signal, pid_t sender, bool is_of_terminal,
                                        TimePoint now);

  static constexpr Duration kEchoWindow = std::chrono::milliseconds(20);
  // Several front ends pass one order on within this time: so many signals kill nobody.
  static constexpr Duration kSameOrder = std::chrono::milliseconds(250);
  // A TERM that asks has been passed on by then; Slurm's TERM at a job's end comes later.
  static constexpr Duration kSameAsk = std::chrono::seconds(2);

 private:
  struct Order {
    int signal;
    pid_t sender;
    TimePoint at;
  };
  static bool IsEcho(const std::optional<Order>& last, const Order& again);
  SignalMeaning ClassifyFurther(int signal, bool is_of_terminal, TimePoint now);

  const SignalBits more_stop_signals_;
  const int ask_signal_;
  std::optional<Order> last_ask_;
  std::optional<Order> last_stop_;
  std::optional<Order> first_stop_;
  int orders_ = 0;      // to stop, but for further HUPs and the user's own signals
  int interrupts_ = 0;  // of the terminal
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
