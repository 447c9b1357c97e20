// The base of communicators that stand in for a group in tests.
#ifndef DDPRUN_TESTS_SUPPORT_FEWER_OPERATIONS_H_
#define DDPRUN_TESTS_SUPPORT_FEWER_OPERATIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/communicator.h"
#include "rendezvous/base/check.h"

namespace ddprun::testing {

// Leaves out the operations that nothing in the library calls: to call one of them ends the test.
class FewerOperations : public ddp::Communicator {
 public:
  std::unique_ptr<ddp::Work> AllReduceCoalesced(std::vector<ddp::Piece>, ddp::DType, ddp::ReduceOp,
                                                ddp::Stream) override {
    return NotForIt();
  }
  std::unique_ptr<ddp::Work> Reduce(const void*, void*, size_t, ddp::DType, ddp::ReduceOp, int,
                                    ddp::Stream) final {
    return NotForIt();
  }
  std::unique_ptr<ddp::Work> Gather(const void*, void*, size_t, ddp::DType, int,
                                    ddp::Stream) final {
    return NotForIt();
  }
  std::unique_ptr<ddp::Work> Scatter(const void*, void*, size_t, ddp::DType, int,
                                     ddp::Stream) final {
    return NotForIt();
  }
  std::unique_ptr<ddp::Work> AllToAll(const void*, void*, size_t, ddp::DType, ddp::Stream) final {
    return NotForIt();
  }
  std::unique_ptr<ddp::Work> SendReceive(const void*, int, void*, int, size_t, ddp::DType,
                                         ddp::Stream) final {
    return NotForIt();
  }

  absl::StatusOr<std::string> DumpOperations() final {
    return absl::UnimplementedError("this stand-in for a communicator keeps no record");
  }

 protected:
  static std::unique_ptr<ddp::Work> NotForIt() {
    DDP_CHECK(!"this stand-in for a communicator has no such operation");
    return nullptr;
  }
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_FEWER_OPERATIONS_H_
