// A process that has run out of file descriptors.
#ifndef DDPRUN_TESTS_SUPPORT_SCARCE_DESCRIPTORS_H_
#define DDPRUN_TESTS_SUPPORT_SCARCE_DESCRIPTORS_H_

#include <sys/resource.h>

#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

// While it lives, this process has one descriptor left: a connection to a server of the same
// process takes it, and the server's accept fails with EMFILE.
class ScarceDescriptors {
 public:
  ScarceDescriptors();
  ~ScarceDescriptors();
  ScarceDescriptors(const ScarceDescriptors&) = delete;
  ScarceDescriptors& operator=(const ScarceDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

// Lets process `pid` open no further descriptor until destroyed; those it has keep working.
class NoMoreDescriptors {
 public:
  explicit NoMoreDescriptors(int pid);
  ~NoMoreDescriptors();
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  const int pid_;
  rlimit before_{};
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_SCARCE_DESCRIPTORS_H_
