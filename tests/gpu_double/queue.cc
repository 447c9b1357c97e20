#include "tests/gpu_double/queue.h"

#include <signal.h>

#include <thread>
#include <utility>

namespace ddprun::gpu_double {

void Mark::Reach() {
  std::lock_guard<std::mutex> lock(mutex_);
  is_reached_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Mark::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return is_reached_; });
}

bool Mark::is_reached() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return is_reached_;
}

std::chrono::steady_clock::time_point Mark::time() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return time_;
}

std::unique_ptr<Queue> Queue::Start() {
  std::unique_ptr<Queue> queue(new Queue());
  // The program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = queue->state_] { Run(*state); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return queue;
}

Queue::~Queue() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->is_closed = true;
  state_->changed.notify_all();
}

void Queue::Push(Op op, std::shared_ptr<Mark> end) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->entries.push_back({std::move(op), std::move(end)});
  state_->changed.notify_all();
}

bool Queue::is_idle() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->entries.empty() && !state_->is_busy;
}

std::shared_ptr<Mark> Queue::PushMark() {
  auto mark = std::make_shared<Mark>();
  Push([] {}, mark);
  return mark;
}

void Queue::Run(State& state) {
  std::unique_lock<std::mutex> lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.is_closed || !state.entries.empty(); });
    if (state.entries.empty()) return;
    Entry entry = std::move(state.entries.front());
    state.entries.pop_front();
    state.is_busy = true;
    lock.unlock();
    entry.op();
    entry.op = nullptr;
    lock.lock();
    state.is_busy = false;
    // Under the lock: who has waited for the mark finds the queue idle.
    if (entry.end != nullptr) entry.end->Reach();
  }
}

}  // namespace ddprun::gpu_double
