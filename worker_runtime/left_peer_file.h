// Where the note of a rank that left stands beside the error file.
#ifndef DDPRUN_WORKER_RUNTIME_LEFT_PEER_FILE_H_
#define DDPRUN_WORKER_RUNTIME_LEFT_PEER_FILE_H_

namespace ddp::internal {

// The note (comm/left_peer.h) has a file of its own, <error file>.left_peer, as well: a process
// that ends by the exception which that error has become writes the error file anew (PyTorch's
// @record).
inline constexpr char kLeftPeerFileSuffix[] = ".left_peer";

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_LEFT_PEER_FILE_H_
