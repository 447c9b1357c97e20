// Starts the workers of one run of a group in their order.
#ifndef DDPRUN_LAUNCHER_PROCESS_START_SEQUENCE_H_
#define DDPRUN_LAUNCHER_PROCESS_START_SEQUENCE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/process/process_baseline.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// The first worker goes ahead alone, so that a program that cannot be executed is rank 0's failure
// and no other worker has been started; then all others follow side by side, one in each turn of
// the io_context, so that a signal in between is served. They run beside the agent and not one
// after the other, so an executable on a file system that hangs holds up its own worker and nobody
// else.
//
// Used on the io_context's one thread, which must live as long as the agent: the kernel kills the
// workers when it ends.
class StartSequence {
 public:
  struct Options {
    ProcessBaseline baseline{};
    Duration slow_after = std::chrono::seconds(30);  // until a start is worth a word
    // Whether the next worker after the first has to wait; asked again and again. May be null.
    std::function<bool()> is_held_for_test{};
  };
  // None is called from inside Begin, Stop or End. They may call Stop.
  struct Callbacks {
    std::function<void(size_t index, pid_t pid)> on_started;
    // Nothing was started, and Stop has been called; or a child did not become its program and ends
    // by itself, to be reaped: the others go on unless this calls Stop.
    std::function<void(size_t index, const SpawnFailure& why)> on_failed;
    // Some child has not begun its program `slow_after` after the first start of its batch. Once a
    // batch, and not after Stop.
    std::function<void(const std::string& executable)> on_slow;
  };

  StartSequence(boost::asio::io_context& io, Options options, Callbacks callbacks);
  ~StartSequence() { End(); }
  StartSequence(const StartSequence&) = delete;
  StartSequence& operator=(const StartSequence&) = delete;

  // Starts workers 0 to requests.size() - 1. REQUIRES: there are requests; End() since the last
  // Begin.
  void Begin(std::vector<SpawnRequest> requests);
  // Starts no further worker; those on their way go on.
  void Stop();
  // All that were started have ended, or have been given up: what children that are still on their
  // way read is left to them for good.
  void End();

  // Whether a worker is still to be started.
  bool is_starting() const { return is_starting_; }
  // Whether this child may still live in the agent's memory, on its way to its program: its batch
  // is not done.
  bool IsOnItsWay(pid_t pid) const { return batch_.contains(pid); }
  // Calls on_failed for what has failed by now. Ask before a child's end is taken for its
  // program's.
  void Check();

 private:
  struct Child {
    size_t index;
    std::unique_ptr<SpawnedChild> process;
  };

  void StartNext();
  void PostNext();
  // Returns errno, or 0.
  int BeginBatch();
  void AwaitFailures();
  std::optional<ChildFailure> NextFailure();
  void EndBatch();

  boost::asio::io_context& io_;
  const Options options_;
  const Callbacks callbacks_;
  boost::asio::steady_timer hold_timer_;  // is_held_for_test
  boost::asio::steady_timer slow_timer_;

  uint64_t run_ = 0;  // grows, so that handlers posted for an earlier run do nothing
  std::vector<SpawnRequest> requests_;
  size_t next_ = 0;
  bool is_starting_ = false;

  // The children side by side. Their failures come through one pipe, of which each has a write end
  // until its exec: its end is the batch's.
  std::map<pid_t, Child> batch_;
  boost::asio::posix::stream_descriptor read_end_;  // open: there is a batch
  UniqueFd write_end_;                              // open: another child may follow
  bool is_batch_done_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_START_SEQUENCE_H_
