#include "tests/examples/train/step_pipe.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/subprocess.h"

namespace ddprun::testing {

StepPipe::StepPipe(const std::string& path) {
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  // Also a writer, as the trainer opens and closes it for each step.
  pipe_ = UniqueFd(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(fcntl(pipe_.get(), F_SETPIPE_SZ, 4096) == 4096);
}

const std::string& StepPipe::Read(size_t bytes) {
  std::string more(bytes, '\0');
  const ssize_t length = read(pipe_.get(), more.data(), more.size());
  if (length > 0) text_.append(more, 0, static_cast<size_t>(length));
  return text_;
}

bool StepPipe::WaitForSteps(int count) {
  return Eventually([&] {
    const std::string& text = Read(40);  // less than a line
    return std::count(text.begin(), text.end(), '\n') >= count;
  });
}

void StepPipe::Widen() {
  constexpr int kBytes = 1 << 18;
  REQUIRE(fcntl(pipe_.get(), F_SETPIPE_SZ, kBytes) == kBytes);
}

}  // namespace ddprun::testing
