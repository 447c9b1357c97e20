// How wrong the time of day is on one machine: processes that are started with env() see it.
#ifndef DDPRUN_TESTS_FAULTS_WRONG_CLOCK_H_
#define DDPRUN_TESTS_FAULTS_WRONG_CLOCK_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "tests/e2e/job.h"

namespace ddprun::testing {

class WrongClock {
 public:
  // By so many seconds. `name`: of the clock among those of the job.
  WrongClock(const Job& job, const std::string& name, int64_t by_s = 0);
  ~WrongClock();
  WrongClock(const WrongClock&) = delete;
  WrongClock& operator=(const WrongClock&) = delete;

  // From now on, for processes that run as well.
  void Jump(int64_t by_s) { by_s_->store(by_s); }
  std::map<std::string, std::string> env() const;
  // Whether somebody has asked for the time of day.
  bool HasFired() const;

 private:
  const std::string path_;
  const std::string fired_;
  std::atomic<int64_t>* by_s_ = nullptr;  // in the file
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_WRONG_CLOCK_H_
