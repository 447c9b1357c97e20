// The daemon of a cluster's manager under which this process was started, and the news of its end.
#ifndef DDPRUN_LAUNCHER_PROCESS_STEP_DAEMON_H_
#define DDPRUN_LAUNCHER_PROCESS_STEP_DAEMON_H_

#include <sys/types.h>

#include <functional>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace ddprun::launcher {

// The nearest ancestor whose program is named `name` ("slurmstepd"); 0: there is none. Reads /proc.
pid_t AncestorNamed(std::string_view name);

// Notices the end of a process that is no child.
class ProcessWatch {
 public:
  // `on_end` is called once, on the io_context's thread. Where pidfd_open is missing, or nothing of
  // `pid` is there any more, it is never called.
  ProcessWatch(boost::asio::io_context& io, pid_t pid, std::function<void()> on_end);

 private:
  boost::asio::posix::stream_descriptor pidfd_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_STEP_DAEMON_H_
