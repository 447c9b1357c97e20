// Words for what the machine refused.
#ifndef DDPRUN_PROCESS_FAILURE_TEXT_H_
#define DDPRUN_PROCESS_FAILURE_TEXT_H_

#include <string>

namespace ddprun {

// "Resource temporarily unavailable (EAGAIN)".
std::string ErrorText(int error);

// "clone: Resource temporarily unavailable (EAGAIN); a limit on processes is reached (ulimit -u,
// pids.max)": the system call for a process or a descriptor, and the limit that it met.
std::string FailureText(const std::string& operation, int error);

}  // namespace ddprun

#endif  // DDPRUN_PROCESS_FAILURE_TEXT_H_
