// Operations that move parts of the ranks' inputs, unchanged, into other ranks' outputs.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_EXCHANGE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_EXCHANGE_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/op_record.h"

namespace ddp::internal {

// Which part of whose input becomes which part of whose output, in bytes: of kGather, kScatter,
// kAllToAll and kSendReceive.
class Exchange {
 public:
  static bool Is(OpKind kind);

  // REQUIRES: Is(op.kind); CheckArguments(). Of kSendReceive only what this rank takes part in is
  // known.
  Exchange(const Op& op, int rank, int world_size);
  // Adds what all ranks called. InvalidArgument, in the same words on all of them, where one sends
  // to another what is not received there; Internal where a record cannot be one. Nothing to do but
  // for kSendReceive.
  absl::Status Learn(const std::vector<OpRecord>& records);

  // What `from` has for `to`; 0: nothing.
  size_t Bytes(int from, int to) const;
  // How much of that lies in [begin, begin + bytes).
  size_t BytesIn(int from, int to, size_t begin, size_t bytes) const {
    const size_t all = Bytes(from, to);
    return std::min(bytes, all - std::min(begin, all));
  }
  // The largest part that any rank has for another, as far as is known.
  size_t longest() const { return longest_; }
  // Where in the input of the sender, and in the output of the receiver.
  size_t InputBegin(int to) const { return has_many_inputs_ ? Place(to) : 0; }
  size_t OutputBegin(int from) const { return has_many_outputs_ ? Place(from) : 0; }

  // In memory where parts wait on their way: room for so many a rank, and which of them is used by
  // the sender, and by the receiver.
  int slots() const { return has_many_inputs_ || has_many_outputs_ ? world_size_ : 1; }
  int InputSlot(int to) const { return has_many_inputs_ ? to : 0; }
  int OutputSlot(int from) const { return has_many_outputs_ ? from : 0; }

 private:
  size_t Place(int rank) const { return static_cast<size_t>(rank) * bytes_; }

  const OpKind kind_;
  const int world_size_;
  const int root_;
  const size_t bytes_;  // of a part of this rank's
  const bool has_many_inputs_;
  const bool has_many_outputs_;
  size_t longest_;
  // Of kSendReceive, by sender: to whom, -1 for nobody, and how much.
  struct Message {
    int to = -1;
    size_t bytes = 0;
  };
  std::vector<Message> messages_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_EXCHANGE_H_
