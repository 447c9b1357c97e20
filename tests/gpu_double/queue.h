// A thread that runs operations one after the other: a stream's, a graph lane's, a communicator's.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_QUEUE_H_
#define DDPRUN_TESTS_GPU_DOUBLE_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace ddprun::gpu_double {

// One point in a queue's work, reached once: what cuEventRecord leaves behind.
class Mark {
 public:
  void Reach();
  void Wait();
  bool is_reached() const;
  // REQUIRES: is_reached().
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
  std::chrono::steady_clock::time_point time_;
};

class Queue {
 public:
  using Op = std::function<void()>;

  // The thread lives until the queue is dropped and has run what it holds. It is never joined: an
  // operation may hang for ever, as a GPU's does.
  static std::unique_ptr<Queue> Start();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // `end`, if any, is reached when `op` has run and the queue no longer counts it.
  void Push(Op op, std::shared_ptr<Mark> end = nullptr);
  // Whether everything pushed so far has run.
  bool is_idle() const;
  // A mark that is reached when everything pushed so far has run.
  std::shared_ptr<Mark> PushMark();

 private:
  struct Entry {
    Op op;
    std::shared_ptr<Mark> end;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Entry> entries;
    bool is_busy = false;
    bool is_closed = false;
  };
  Queue() = default;
  static void Run(State& state);

  // Shared with the thread, which may outlive the queue.
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_QUEUE_H_
