#include "launcher/process/step_daemon.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "launcher/process/process.h"

namespace ddprun::launcher {

pid_t AncestorNamed(std::string_view name) {
  return FindAncestor([name](pid_t, std::string_view at) { return at == name; });
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
