// Starts the workers of one run of a group in their order.
#ifndef DDPRUN_LAUNCHER_PROCESS_START_SEQUENCE_H_
#define DDPRUN_LAUNCHER_PROCESS_START_SEQUENCE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/process/process_baseline.h"
#include "launcher/process/spawn.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// The first worker goes ahead alone, so that a program that cannot be executed is rank 0's failure
// and no other worker has been started; then all others follow side by side, one in each turn of
// the io_context, so that a signal in between is served. Used on the io_context's one thread.
class StartSequence {
 public:
  struct Options {
    ProcessBaseline baseline{};
    Duration slow_after = std::chrono::seconds(30);  // until a start is worth a word
    Duration delay_for_test{0};                      // between two spawns
  };
  // None is called from inside Begin, Stop or End. They may call Stop.
  struct Callbacks {
    std::function<SpawnRequest(size_t index)> request;
    std::function<void(size_t index, pid_t pid)> on_started;
    // Nothing was started, and Stop has been called; or a child did not become its program and ends
    // by itself: the others go on unless this calls Stop.
    std::function<void(size_t index, const SpawnResult& why)> on_failed;
    // Some child has not begun its program `slow_after` after the first start of its batch. Once a
    // batch, and not after Stop.
    std::function<void()> on_slow;
  };

  StartSequence(boost::asio::io_context& io, Options options, Callbacks callbacks);
  StartSequence(const StartSequence&) = delete;
  StartSequence& operator=(const StartSequence&) = delete;

  // Starts workers 0 to count - 1. REQUIRES: count > 0; End() since the last Begin.
  void Begin(size_t count);
  // Starts no further worker; those on their way go on.
  void Stop();
  // All that were started have ended, or have been given up.
  void End();

  // Whether a worker is still to be started.
  bool is_starting() const { return is_starting_; }
  // Whether this child may still live in the agent's memory, on its way to its program: its batch
  // is not done.
  bool IsOnItsWay(pid_t pid) const { return batch_ && children_.contains(pid); }
  // Calls on_failed for what has failed by now. Ask before a child's end is taken for its
  // program's.
  void Check();

 private:
  void StartNext();
  void PostNext();
  void BeginBatch();
  void EndBatch();

  boost::asio::io_context& io_;
  const Options options_;
  const Callbacks callbacks_;
  boost::asio::steady_timer delay_timer_;  // delay_for_test
  boost::asio::steady_timer slow_timer_;

  uint64_t run_ = 0;  // grows, so that handlers posted for an earlier run do nothing
  size_t count_ = 0;
  size_t next_ = 0;
  bool is_starting_ = false;
  std::unique_ptr<SpawnBatch> batch_;  // null: every worker started so far runs its program
  std::map<pid_t, size_t> children_;   // of the batch
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_START_SEQUENCE_H_
