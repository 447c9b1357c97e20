#include "tests/support/scarce_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

constexpr rlim_t kFew = 256;

// ddprun keeps the descriptors below this number from its first moments to its end. A later one may
// be a file's that it is writing: when that closes, its number is free again.
constexpr rlim_t kKept = 8;

// The number that the next descriptor of `pid` would get.
rlim_t LowestFree(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd/";
  rlim_t number = 0;
  char target[16];
  while (readlink((folder + std::to_string(number)).c_str(), target, sizeof target) > 0) ++number;
  return number;
}

}  // namespace

ScarceDescriptors::ScarceDescriptors() {
  DDP_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
  rlimit few = before_;
  few.rlim_cur = kFew;
  DDP_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
  for (;;) {
    UniqueFd fd(fcntl(0, F_DUPFD_CLOEXEC, 3));
    if (!fd.is_open()) break;
    taken_.push_back(std::move(fd));
  }
  DDP_CHECK(!taken_.empty());
  taken_.pop_back();
}

ScarceDescriptors::~ScarceDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

NoMoreDescriptors::NoMoreDescriptors(int pid) : pid_(pid) {
  DDP_CHECK(prlimit(pid_, RLIMIT_NOFILE, nullptr, &before_) == 0);
  rlimit none = before_;
  none.rlim_cur = std::min(kKept, LowestFree(pid_));
  DDP_CHECK(prlimit(pid_, RLIMIT_NOFILE, &none, nullptr) == 0);
}

NoMoreDescriptors::~NoMoreDescriptors() { prlimit(pid_, RLIMIT_NOFILE, &before_, nullptr); }

}  // namespace ddprun::testing
