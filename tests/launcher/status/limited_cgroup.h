// A memory cgroup of a test's own, in which the kernel's OOM killer really kills.
#ifndef DDPRUN_TESTS_LAUNCHER_STATUS_LIMITED_CGROUP_H_
#define DDPRUN_TESTS_LAUNCHER_STATUS_LIMITED_CGROUP_H_

#include <cstdint>
#include <string>

namespace ddprun::testing {

// Below our own, and empty; removed at the end, when nobody is in it any more.
class LimitedCgroup {
 public:
  explicit LimitedCgroup(int64_t bytes);
  ~LimitedCgroup();
  LimitedCgroup(const LimitedCgroup&) = delete;
  LimitedCgroup& operator=(const LimitedCgroup&) = delete;

  const std::string& why_not() const { return why_not_; }  // "": it is there
  // Takes the pids of those that join, as text.
  std::string procs_file() const { return path_ + "/cgroup.procs"; }
  // Of the calling process.
  bool Join() const;

 private:
  std::string path_;
  std::string why_not_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_STATUS_LIMITED_CGROUP_H_
