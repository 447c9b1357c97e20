// The tensors of a model, equal on all ranks: its parameters and buffers.
#ifndef DDPRUN_WORKER_RUNTIME_MODEL_TENSORS_H_
#define DDPRUN_WORKER_RUNTIME_MODEL_TENSORS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp::internal {

struct ModelTensor {
  std::string name;
  void* data;
  size_t count;
  DType dtype;
};

// InvalidArgument for a name that comes twice, also as both kinds, for elements without memory, a
// type that does not exist, and more bytes than can be addressed.
absl::Status CheckTensors(const std::vector<ModelTensor>& parameters,
                          const std::vector<ModelTensor>& buffers);

struct BroadcastOptions {
  Stream stream = nullptr;
  // CUDA: the values are there for what comes later on the stream, and not for all at once.
  bool stream_waits = false;
  int root = 0;
};

// Collective: the root's values replace everybody's, behind what is on the stream. When one is
// refused, this aborts the communicator, since the others wait for it. `what` is for errors.
absl::Status BroadcastTensors(Communicator& communicator, const std::vector<ModelTensor>& tensors,
                              const char* what, const BroadcastOptions& options);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_MODEL_TENSORS_H_
