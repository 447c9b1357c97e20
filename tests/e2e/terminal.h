// A program of a job that runs in a terminal of its own.
#ifndef DDPRUN_TESTS_E2E_TERMINAL_H_
#define DDPRUN_TESTS_E2E_TERMINAL_H_

#include <termios.h>

#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/e2e/job.h"

namespace ddprun::testing {

// `ddprun <arguments>` with a pseudo-terminal as stdin, stdout and stderr.
class Terminal {
 public:
  struct Size {
    unsigned short rows = 24, columns = 80;
  };
  Terminal(Job& job, std::vector<std::string> arguments, Subprocess::Options how)
      : Terminal(job, std::move(arguments), std::move(how), Size()) {}
  Terminal(Job& job, std::vector<std::string> arguments, Subprocess::Options how, Size size);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Type(const std::string& keys);
  void Resize(Size size);
  // All that was written to it.
  std::string shown() const;
  // Whether what was written from byte `from` on has come to hold `text`.
  bool WaitFor(const std::string& text, size_t from = 0) const;
  // As it is now.
  termios modes() const;
  void Signal(int signal) { program_->Signal(signal); }
  std::optional<int> Wait() { return program_->Wait(); }

 private:
  void Read(const std::stop_token& stop);

  UniqueFd ours_, theirs_;
  std::unique_ptr<Subprocess> program_;
  mutable std::mutex mutex_;
  std::string shown_;  // guarded by mutex_
  std::jthread reader_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_TERMINAL_H_
