#include "worker_runtime/comm/nccl/side_thread.h"

#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"

namespace ddp::internal {

SideThread::~SideThread() { DDP_CHECK(!thread_.joinable()); }

bool SideThread::Start(std::function<void()> work) {
  thread_ =
      ddprun::StartQuietThread([state = state_, work = std::move(work)] { Main(*state, work); });
  return thread_.joinable();
}

void SideThread::Main(State& state, const std::function<void()>& work) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.is_running || state.is_stopping; });
    if (!state.is_stopping) {
      lock.unlock();
      work();
      lock.lock();
    }
    state.is_running = false;
    state.changed.notify_all();
    if (state.is_stopping) return;
  }
}

SideThread::Clock::duration SideThread::Run(Clock::duration patience) {
  if (!thread_.joinable()) return Clock::duration::zero();
  std::unique_lock lock(state_->mutex);
  if (!std::exchange(state_->is_running, true)) {
    state_->since = Clock::now();
    state_->changed.notify_all();
  }
  const bool has_ended =
      state_->changed.wait_for(lock, patience, [&] { return !state_->is_running; });
  return has_ended ? Clock::duration::zero() : Clock::now() - state_->since;
}

bool SideThread::Stop(Clock::duration patience) {
  if (!thread_.joinable()) return true;
  std::unique_lock lock(state_->mutex);
  state_->is_stopping = true;
  state_->changed.notify_all();
  const bool has_ended =
      state_->changed.wait_for(lock, patience, [&] { return !state_->is_running; });
  lock.unlock();
  if (has_ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return has_ended;
}

}  // namespace ddp::internal
