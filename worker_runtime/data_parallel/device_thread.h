// The thread of one device, for DataParallel.
#ifndef DDPRUN_WORKER_RUNTIME_DATA_PARALLEL_DEVICE_THREAD_H_
#define DDPRUN_WORKER_RUNTIME_DATA_PARALLEL_DEVICE_THREAD_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddp::internal {

// Runs one task at a time. Driven by one thread.
class DeviceThread {
 public:
  // Binds the thread to share `index` of `shares` of the CPUs that the calling thread may use,
  // where there are as many. ResourceExhausted: no thread is to be had.
  static absl::StatusOr<std::unique_ptr<DeviceThread>> Start(int index, int shares);
  // REQUIRES: no task is under way.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // REQUIRES: Wait() was called since the last one.
  void Begin(std::function<absl::Status()> task);
  // Waits until the task ended, and returns its result.
  absl::Status Wait();

 private:
  DeviceThread() = default;
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<absl::Status()> task_;  // null: none is under way
  absl::Status result_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_DATA_PARALLEL_DEVICE_THREAD_H_
