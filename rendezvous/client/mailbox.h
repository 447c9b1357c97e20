// Work for one thread, posted by others.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_MAILBOX_H_
#define DDPRUN_RENDEZVOUS_CLIENT_MAILBOX_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// Shared by its thread and by whoever posts, which may be late: what comes after Close is dropped.
class Mailbox {
 public:
  using Task = std::function<void()>;

  void Post(Task task);
  // The thread takes what was posted before, and then nothing more.
  void Close();
  // Runs tasks as they come, until there is none at `deadline` (nullopt: no such time). False: it
  // was closed, and all is done.
  bool RunUntil(std::optional<TimePoint> deadline);
  // Waits until RunUntil has returned false. False: `timeout` passed before.
  bool WaitDone(Duration timeout);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_closed_ = false;
  bool is_done_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_MAILBOX_H_
