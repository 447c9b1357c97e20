// The base of communicators that stand in for a group on GPUs.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ON_DEVICE_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ON_DEVICE_H_

#include <memory>
#include <string>

#include "ddp/communicator.h"
#include "tests/worker_runtime/all_reduce_only.h"

namespace ddp::internal {

// Its host communicator is a real one; collectives on the device end the test.
class OnDevice : public AllReduceOnly {
 public:
  explicit OnDevice(Communicator& host) : host_(host) {}
  int rank() const final { return host_.rank(); }
  int world_size() const final { return host_.world_size(); }
  const char* backend() const final { return "device"; }
  DeviceType device_type() const final { return DeviceType::kCuda; }
  Communicator& host() final { return host_; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t) final {
    return absl::UnimplementedError("this stand-in for a communicator allocates nothing");
  }
  std::unique_ptr<Work> AllReduce(void*, size_t, DType, ReduceOp, Stream) final {
    return NotForIt();
  }
  void Abort(const std::string&) final {}
  absl::Status error() const final { return absl::OkStatus(); }

 private:
  Communicator& host_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ON_DEVICE_H_
