// What the process tests share: an io_context turned until something is true, pipes, /proc.
#ifndef DDPRUN_TESTS_LAUNCHER_PROCESS_PROCESS_TESTING_H_
#define DDPRUN_TESTS_LAUNCHER_PROCESS_PROCESS_TESTING_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "launcher/process/process_baseline.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/unique_fd.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::testing {

// The baseline of this test program, taken and applied at the first call.
const launcher::ProcessBaseline& TestBaseline();

struct SpawnResult {
  pid_t pid = 0;  // -1: it did not start, and the rest says why
  int exit_code = 0;
  std::string text{};

  bool ok() const { return pid > 0; }
};

// Starts `request` alone. Returns once its program runs or has failed to start (and is reaped).
SpawnResult Spawn(boost::asio::io_context& io, launcher::SpawnRequest request,
                  const launcher::ProcessBaseline& baseline);
SpawnResult Spawn(launcher::SpawnRequest request, const launcher::ProcessBaseline& baseline);

// Path of the toy_worker program.
std::string ToyWorker();

// The environment of this test as "NAME=value", with `extra` appended.
std::vector<std::string> TestEnvironment(std::vector<std::string> extra = {});

// Runs `io` until `is_done` or 30 s are over; true when done.
bool RunUntil(boost::asio::io_context& io, const std::function<bool()>& is_done);

// Waits (outside any io_context) until `is_done` or 30 s are over; true when done.
bool WaitUntil(const std::function<bool()>& is_done);

// A pipe whose write end goes to a worker and whose read end the test reads.
class CapturePipe {
 public:
  CapturePipe();
  int write_end() const { return write_end_.get(); }
  void CloseWriteEnd() { write_end_.Reset(); }
  // Everything written until `text` has come behind offset `from`, or 30 s are over.
  std::string ReadUntil(const std::string& text, size_t from = 0);
  // Everything until all writers are gone or 30 s are over. Closes our write end first.
  std::string ReadAll();

 private:
  bool ReadMore();
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::string seen_;
};

// Whether `pid` runs: exists and is no zombie.
bool IsRunning(pid_t pid);
// The letter of /proc/<pid>/stat; '-' when there is none.
char StateOf(pid_t pid);
// The number that follows `word` in `text`; -1 when it is not there.
pid_t NumberAfter(const std::string& text, const std::string& word);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PROCESS_PROCESS_TESTING_H_
