#include "worker_runtime/data_parallel/device_thread.h"

#include <sched.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"

namespace ddp::internal {
namespace {

// Share `index` of the CPUs that this thread may use; empty where not each share has one.
cpu_set_t ShareOfCpus(int index, int shares) {
  cpu_set_t allowed, share;
  CPU_ZERO(&allowed);
  CPU_ZERO(&share);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return share;  // above 1024 CPUs
  const int count = CPU_COUNT(&allowed);
  if (count < shares) return share;
  const int begin = index * count / shares, end = (index + 1) * count / shares;
  for (int cpu = 0, nth = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (nth >= begin && nth < end) CPU_SET(cpu, &share);
    ++nth;
  }
  return share;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceThread>> DeviceThread::Start(int index, int shares) {
  const cpu_set_t share = ShareOfCpus(index, shares);
  std::unique_ptr<DeviceThread> made(new DeviceThread);
  made->thread_ = ddprun::StartQuietThread([self = made.get(), share] {
    // Where it fails the thread runs on all CPUs: the result is the same.
    if (CPU_COUNT(&share) > 0) ::sched_setaffinity(0, sizeof(share), &share);
    self->Loop();
  });
  if (made->thread_.joinable()) return made;
  return absl::ResourceExhaustedError(absl::StrCat("start the thread of device ", index, " of ",
                                                   shares, ": ", ddprun::kNoThreadText));
}

DeviceThread::~DeviceThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceThread::Begin(std::function<absl::Status()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    DDP_CHECK(task_ == nullptr);
    task_ = std::move(task);
  }
  changed_.notify_all();
}

absl::Status DeviceThread::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return task_ == nullptr; });
  return std::move(result_);
}

void DeviceThread::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return task_ != nullptr || is_ending_; });
    if (task_ == nullptr) return;
    lock.unlock();
    absl::Status result = task_();
    lock.lock();
    result_ = std::move(result);
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace ddp::internal
