// What a process group asks of the communicator that it owns.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

class GroupCommunicator : public Communicator {
 public:
  // Tells the peers that this rank goes in order, once nothing is under way. Later calls fail.
  virtual void Leave() = 0;

  std::unique_ptr<Work> AllReduce(void* data, size_t count, DType dtype, ReduceOp op,
                                  ddp::Stream stream) final;
  std::unique_ptr<Work> AllReduceCoalesced(std::vector<Piece> pieces, DType dtype, ReduceOp op,
                                           ddp::Stream stream) final;
  std::unique_ptr<Work> Broadcast(void* data, size_t count, DType dtype, int root,
                                  ddp::Stream stream) final;
  std::unique_ptr<Work> AllGather(const void* input, void* output, size_t count, DType dtype,
                                  ddp::Stream stream) final;
  std::unique_ptr<Work> ReduceScatter(const void* input, void* output, size_t count, DType dtype,
                                      ReduceOp op, ddp::Stream stream) final;
  std::unique_ptr<Work> Reduce(const void* input, void* output, size_t count, DType dtype,
                               ReduceOp op, int root, ddp::Stream stream) final;
  std::unique_ptr<Work> Gather(const void* input, void* output, size_t count, DType dtype, int root,
                               ddp::Stream stream) final;
  std::unique_ptr<Work> Scatter(const void* input, void* output, size_t count, DType dtype,
                                int root, ddp::Stream stream) final;
  std::unique_ptr<Work> AllToAll(const void* input, void* output, size_t count, DType dtype,
                                 ddp::Stream stream) final;
  std::unique_ptr<Work> SendReceive(const void* input, int destination, void* output, int source,
                                    size_t count, DType dtype, ddp::Stream stream) final;

 protected:
  // Every operation of every backend. Null is the legacy stream, or the host's order.
  virtual std::unique_ptr<Work> Submit(Op op, ddp::Stream stream) = 0;
};

// What a communicator on GPUs asks, besides, of the one under it for host memory.
class HostCommunicator : public GroupCommunicator {
 public:
  // error() with its mark, and told to nobody (left_peer.h).
  virtual absl::Status MarkedError() const = 0;
  // LeftPeerNote's.
  virtual absl::Status Told(absl::Status status) = 0;
  // Abort() over what `left_peer` caused. A call of Abort() is this rank's own doing.
  virtual void AbortFor(const std::string& reason, std::optional<int> left_peer) = 0;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_GROUP_COMMUNICATOR_H_
