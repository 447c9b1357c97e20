#include "tests/faults/wrong_clock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

WrongClock::WrongClock(const Job& job, const std::string& name, int64_t by_s)
    : path_(job.File(name)), fired_(job.File(name + ".fired")) {
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  DDP_CHECK(file >= 0 && ftruncate(file, sizeof(int64_t)) == 0);
  void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  DDP_CHECK(page != MAP_FAILED);
  close(file);
  by_s_ = static_cast<std::atomic<int64_t>*>(page);
  Jump(by_s);
}

WrongClock::~WrongClock() { munmap(by_s_, sizeof(int64_t)); }

std::map<std::string, std::string> WrongClock::env() const {
  return {{"LD_PRELOAD", Runfile("tests/faults/libfault_shim.so")},
          {"DDPRUN_TEST_CLOCK", path_},
          {"DDPRUN_TEST_FIRED", fired_}};
}

bool WrongClock::HasFired() const { return access(fired_.c_str(), F_OK) == 0; }

}  // namespace ddprun::testing
