#include "process/failure_text.h"

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
  if (error == EAGAIN) text += "; a limit on processes is reached (ulimit -u, pids.max)";
  if (error == EMFILE) text += "; the limit on open files is reached (ulimit -n)";
  return text;
}

}  // namespace ddprun
