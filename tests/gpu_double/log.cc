#include "tests/gpu_double/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "tests/gpu_double/settings.h"

namespace ddprun::gpu_double {

void Log(const char* format, ...) {
  const std::string path = TextSetting("DDPRUN_DOUBLE_LOG", "");
  if (path.empty()) return;
  char line[512];
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  int length = std::snprintf(line, sizeof line, "pid=%d us=%lld ", static_cast<int>(getpid()),
                             static_cast<long long>(us));
  va_list arguments;
  va_start(arguments, format);
  const int added = std::vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1,
                                   format, arguments);
  va_end(arguments);
  length = std::min(length + added, static_cast<int>(sizeof line) - 2);
  line[length] = '\n';
  // Opened for each line: a test may change the path between two cases.
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, line, static_cast<size_t>(length) + 1) < 0) std::perror("gpu double: log");
  close(fd);
}

}  // namespace ddprun::gpu_double
