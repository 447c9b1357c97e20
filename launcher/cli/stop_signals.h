// --signals_to_handle. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_STOP_SIGNALS_H_
#define DDPRUN_LAUNCHER_CLI_STOP_SIGNALS_H_

#include <string>
#include <vector>

namespace ddprun::launcher {

// torchrun's default; workers are told of it by TORCHELASTIC_SIGNALS_TO_HANDLE.
inline constexpr char kDefaultSignalsToHandle[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

// The numbers of the signals named in `text` that stop the job only because they are named there:
// the four of the default always do. A name that is none, or of a signal that cannot be handled, is
// no error (torchrun goes on without it): it becomes a warning, which the caller puts the option
// in front of.
std::vector<int> MoreStopSignals(const std::string& text, std::vector<std::string>& warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_STOP_SIGNALS_H_
