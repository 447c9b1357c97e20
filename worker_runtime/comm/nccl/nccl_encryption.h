// NCCL's own encryption, which it has since 2.32: TLS 1.3 on its TCP connections, by a key of the
// round. It is of the whole process.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENCRYPTION_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENCRYPTION_H_

#include <string>

#include "absl/status/status.h"
#include "worker_runtime/comm/tcp/link_key.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace ddp::internal {

// Why this NCCL cannot encrypt, and which could; empty if it can. A build without TLS takes a key
// as well, and fails when it connects: it is told by its file. Empty, too, where that does not
// tell: what must be encrypted is not sent in the clear then.
std::string WhyNcclIsPlain(const LoadedNccl& nccl);

// Says so on stderr, once in a process.
void SayNcclIsPlain(const LoadedNccl& nccl);

// Says on stderr, once in a process, that an NCCL that encrypts does so over TCP alone.
void SayWhatNcclEncrypts();

// Has NCCL encrypt in this process, which has one round and one key. Comes before all that NCCL
// does. An error says what to do: what must be encrypted is not sent in the clear then.
absl::Status EncryptNccl(const LoadedNccl& nccl, const LinkKey& key);

// What to do where NCCL has failed with these words, and encrypts; empty if that is not why.
std::string AdviceOnEncryption(const std::string& words);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NCCL_NCCL_ENCRYPTION_H_
