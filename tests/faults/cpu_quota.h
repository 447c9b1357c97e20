// A cgroup of a test's own whose processes get a share of one core.
#ifndef DDPRUN_TESTS_FAULTS_CPU_QUOTA_H_
#define DDPRUN_TESTS_FAULTS_CPU_QUOTA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace ddprun::testing {

class CpuQuota {
 public:
  // Of each 0.1 s as many milliseconds. Null, with the reason in `why`, where this machine does not
  // permit it. It lies below our own cgroup, in whichever version has the controller.
  static std::unique_ptr<CpuQuota> Make(int of_100_ms, std::string* why);
  // Those in it must have ended or be about to.
  ~CpuQuota();
  CpuQuota(const CpuQuota&) = delete;
  CpuQuota& operator=(const CpuQuota&) = delete;

  // With all its threads. Whether it is in it.
  bool Take(int pid) const;
  // In how many periods somebody had to wait.
  int64_t throttled() const;

 private:
  explicit CpuQuota(std::string folder) : folder_(std::move(folder)) {}

  const std::string folder_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_CPU_QUOTA_H_
