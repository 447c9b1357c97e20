// A secret for one round: who knows it has read the round's store. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_NONCE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_NONCE_H_

#include <array>
#include <cstdint>
#include <string>

namespace ddp::internal {

using Nonce = std::array<uint8_t, 16>;

// 32 hexadecimal digits.
std::string NonceText(const Nonce& nonce);
// False, leaving `nonce` alone, if `text` is not what NonceText() gives.
bool ParseNonce(const std::string& text, Nonce* nonce);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_NONCE_H_
