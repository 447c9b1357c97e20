// A cgroup of a test's own whose processes get a share of one core.
#ifndef DDPRUN_TESTS_FAULTS_CPU_QUOTA_H_
#define DDPRUN_TESTS_FAULTS_CPU_QUOTA_H_

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

class CpuQuota {
 public:
  // Of each 0.1 s as many milliseconds. Null, with the reason in `why`, where this machine does not
  // permit it. It lies below our own cgroup, in whichever version has the controller, and waits for
  // another test's to go.
  static std::unique_ptr<CpuQuota> Make(int of_100_ms, std::string* why);
  // Those in it must have ended or be about to.
  ~CpuQuota();
  CpuQuota(const CpuQuota&) = delete;
  CpuQuota& operator=(const CpuQuota&) = delete;

  // With all its threads. Whether it is in it.
  bool Take(int pid) const;
  // Into our own cgroup. Whether it is there.
  bool Free(int pid) const;
  // In how many periods somebody had to wait.
  int64_t throttled() const;

 private:
  CpuQuota(const std::string& own, UniqueFd lock, bool has_handed_down);

  const std::string own_;  // our own cgroup, below which it lies
  const UniqueFd lock_;    // of that
  const std::string folder_;
  const bool has_handed_down_;  // its children have the controller by us
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_CPU_QUOTA_H_
