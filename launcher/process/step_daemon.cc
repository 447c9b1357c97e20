#include "launcher/process/step_daemon.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/owner_tag.h"

namespace ddprun::launcher {

pid_t AncestorNamed(const std::string& name) {
  for (pid_t pid = getppid(); pid > 1;) {
    const std::string stat = ReadProcFile(absl::StrCat("/proc/", pid, "/stat"));
    // "PID (NAME) STATE PARENT ...", where NAME may hold anything.
    const size_t open = stat.find('(');
    const size_t close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) return 0;
    if (stat.compare(open + 1, close - open - 1, name) == 0) return pid;
    if (std::sscanf(stat.c_str() + close, ") %*c %d", &pid) != 1) return 0;
  }
  return 0;
}

ProcessWatch::ProcessWatch(boost::asio::io_context& io, pid_t pid, std::function<void()> on_end)
    : pidfd_(io) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // close-on-exec, always
  if (fd < 0) return;
  boost::system::error_code error;
  pidfd_.assign(fd, error);
  if (error) {
    close(fd);
    return;
  }
  pidfd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [on_end = std::move(on_end)](const boost::system::error_code& error) {
                      if (!error) on_end();
                    });
}

}  // namespace ddprun::launcher
