// When a GPU's stream gets to a point, for StepMetrics; how busy it is, for RankBalance.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_DEVICE_TIMER_H_
#define DDPRUN_WORKER_RUNTIME_COMM_DEVICE_TIMER_H_

#include <chrono>
#include <memory>
#include <optional>

#include "ddp/communicator.h"

namespace ddp::internal {

// A point in the work of a stream. Destroyed before its communicator.
class DeviceMoment {
 public:
  virtual ~DeviceMoment() = default;
  // In the host's time, once the device has got there; until then, and after an error of the
  // group, none. Does not wait.
  virtual std::optional<Work::Clock::time_point> Time() = 0;
};

// Used by the thread that calls the communicator.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // Behind all that is on `stream` now. Null when there is no telling: after an error of the group,
  // and while `stream` captures.
  virtual std::unique_ptr<DeviceMoment> Mark(Stream stream) = 0;
  // The share of the time since then, 0 to 1, in which the GPU ran a kernel of any process; of the
  // last 16 s where that was longer ago. None where the driver does not tell, or after an error.
  virtual std::optional<double> UtilisationSince(std::chrono::system_clock::time_point since) = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_DEVICE_TIMER_H_
