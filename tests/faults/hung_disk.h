// A file system that does not answer, as one whose server is gone: who looks for a name on it waits
// in the kernel, where not even SIGKILL ends the wait.
//
// It is FUSE's, spoken without its library: the test is the server, which reads each request and
// answers the first alone, by which a mount begins.
#ifndef DDPRUN_TESTS_FAULTS_HUNG_DISK_H_
#define DDPRUN_TESTS_FAULTS_HUNG_DISK_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

class HungDisk {
 public:
  // Mounts at the folder, which must be there, for this thread and what it starts from now on.
  // Null, with the reason in `why`, where this machine does not permit it.
  static std::unique_ptr<HungDisk> Mount(const std::string& folder, std::string* why);
  // Lets all go that wait for it: they get an error.
  ~HungDisk();
  HungDisk(const HungDisk&) = delete;
  HungDisk& operator=(const HungDisk&) = delete;

  // A file on it, for which whoever looks waits.
  std::string file() const { return folder_ + "/file"; }
  // How many requests have been read, and will not be answered.
  size_t unanswered() const { return unanswered_; }

 private:
  HungDisk(std::string folder, UniqueFd device);
  void Serve();

  const std::string folder_;
  const UniqueFd device_;
  std::atomic<size_t> unanswered_{0};
  std::thread server_;
};

// The letter of a process's state in /proc, 'D' for a wait that no signal ends; '\0': it is gone.
char StateOf(int pid);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_HUNG_DISK_H_
