// Threads for what may not return.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_SIDE_THREAD_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_SIDE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace ddp::internal {

// Runs `work` once, on a thread that is left to itself where it hangs. Returns the future. Where
// the machine has no thread for it the caller runs it.
template <typename Work>
auto OnThread(Work work) {
  auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
  auto result = task->get_future();
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    (*task)();
  }
  return result;
}

// Runs one function, whenever it is asked to, on a thread of its own. One thread uses this.
class SideThread {
 public:
  using Clock = std::chrono::steady_clock;

  SideThread() = default;
  // REQUIRES: Stop() was called, or Start() was not.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // False: the machine has no thread for it.
  [[nodiscard]] bool Start(std::function<void()> work);
  // Asks for a run, unless one has not ended yet, and waits for its end, `patience` at most.
  // Returns for how long it has been running: zero when it has ended, or before Start(). REQUIRES:
  // Stop() was not called.
  Clock::duration Run(Clock::duration patience);
  // Waits for the end of a run, `patience` at most, and ends the thread. False: the run goes on,
  // and with it the use of whatever it uses, for as long as the process lives. No effect when
  // repeated or not started.
  bool Stop(Clock::duration patience);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_running = false;
    bool is_stopping = false;
    Clock::time_point since{};
  };
  static void Main(State& state, const std::function<void()>& work);

  // Shared with the thread, which may outlive us.
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_SIDE_THREAD_H_
