#include "process/failure_text.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace ddprun {

std::string ErrorText(int error) {
  const char* name = strerrorname_np(error);
  const char* words = strerrordesc_np(error);
  if (name == nullptr || words == nullptr) return "error " + std::to_string(error);
  return std::string(words) + " (" + name + ")";
}

std::string FailureText(const std::string& operation, int error) {
  std::string text = operation + ": " + ErrorText(error);
  // The kernel says the same of a thread whose stack the limit on memory leaves no room for.
  rlimit memory{};
  const bool is_memory_limited =
      getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY;
  if (error == EAGAIN) {
    text += is_memory_limited ? "; a limit on processes (ulimit -u, pids.max) or that on memory "
                                "(ulimit -v) is reached"
                              : "; a limit on processes is reached (ulimit -u, pids.max)";
  }
  if (error == EMFILE) text += "; the limit on open files is reached (ulimit -n)";
  return text;
}

}  // namespace ddprun
