// A library in the driver's place that does what a driver in trouble does, as it is opened.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

__attribute__((constructor)) void Misbehave() {
  const char* how = std::getenv("DDPRUN_TEST_DRIVER");
  const std::string_view word = how != nullptr ? how : "";
  if (word == "hang") {
    // For who wants to know when it does.
    const char* file = std::getenv("DDPRUN_TEST_DRIVER_HANGS");
    if (file != nullptr) close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    for (;;) pause();
  }
  if (word == "crash") __builtin_trap();
  if (word == "print") {
    std::puts("driver_file=/a/lie");
    std::fflush(stdout);
    std::fputs("a library's chatter\n", stderr);
  }
}

}  // namespace

// All that it has: a driver older than any we know.
extern "C" int cuInit(unsigned) { return 0; }
