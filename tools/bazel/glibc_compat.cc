// libstdc++.a of GCC 12 takes arc4random from glibc 2.36. Defined here, over getrandom, a portable
// program built on Debian 12 starts with glibc 2.34 too (RHEL 9, Ubuntu 22.04).
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

// Hidden: a shared library that we ship takes nobody else's calls.
extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() {
  std::uint32_t value = 0;
  // Four bytes come whole or, interrupted before the kernel's pool is ready, not at all.
  while (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    if (errno != EINTR) std::abort();
  }
  return value;
}
