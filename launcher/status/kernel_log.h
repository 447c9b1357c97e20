// The kernel's log, as far as it is read here: who was killed for lack of memory.
#ifndef DDPRUN_LAUNCHER_STATUS_KERNEL_LOG_H_
#define DDPRUN_LAUNCHER_STATUS_KERNEL_LOG_H_

#include <memory>
#include <string>
#include <vector>

#include "launcher/status/oom_lines.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// Begins at the log's end: an earlier line may be of another process that had the same number. One
// thread at a time. Never waits for the log.
class KernelLog {
 public:
  // Null where we may not read it, and in a pid namespace, where its numbers are others'.
  // /dev/kmsg, or else syslog(2).
  static std::unique_ptr<KernelLog> Open();
  // The same with a file in place of /dev/kmsg, in any namespace.
  static std::unique_ptr<KernelLog> OpenForTest(const std::string& device);

  // Those killed since then, a few hundred at most. Stops reading, to go on the next time, when
  // `until` has come.
  const std::vector<OomKill>& Kills(TimePoint until);

 private:
  explicit KernelLog(UniqueFd device);
  void ReadDevice(TimePoint until);
  void ReadSyslog();
  void Note(std::string_view record);

  const UniqueFd device_;  // not open: syslog(2)
  std::string last_line_;  // of syslog(2), that has been looked at
  std::vector<OomKill> kills_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_KERNEL_LOG_H_
