// How a process ended, decoded once. [pure]
#ifndef DDPRUN_PROCESS_EXIT_STATUS_H_
#define DDPRUN_PROCESS_EXIT_STATUS_H_

#include <string>

namespace ddprun {

struct ExitStatus {
  bool exited = false;  // by exit(); else by a signal
  int code = 0;         // valid when it exited
  int signal = 0;       // valid when it did not
  bool dumped_core = false;
  bool is_unknown = false;  // somebody else reaped it: no field above holds

  bool is_success() const { return exited && code == 0; }
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

// Decodes what waitid() wrote: `how` is si_code (CLD_EXITED, CLD_KILLED or CLD_DUMPED), `value`
// si_status. REQUIRES: `how` is one of the three.
ExitStatus DecodeWaitInfo(int how, int value);

// "SIGKILL" for 9; "signal 40" for a number without a name of its own.
std::string SignalName(int signal);

}  // namespace ddprun

#endif  // DDPRUN_PROCESS_EXIT_STATUS_H_
