// A listening socket that believes nobody who cannot prove itself.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_ACCEPTOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_ACCEPTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

// What a connecting rank says first: all of it or it is dropped.
struct Hello {
  char magic[8];
  Nonce nonce;  // the listener's
  int32_t from;
  int32_t to;
};
static_assert(sizeof(Hello) == 32);

Hello MakeHello(const Nonce& nonce, int from, int to);

class Acceptor {
 public:
  static constexpr std::chrono::seconds kHelloTimeout{5};
  static constexpr size_t kMaxStrangers = 64;

  // Listens on `address`, port chosen by the kernel. Unavailable with errno.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& address, int rank,
                                                          const Nonce& nonce);
  uint16_t port() const { return port_; }

  struct Peer {
    int rank;
    ddprun::UniqueFd socket;
  };
  // Waits until all of `expected` have connected and proved themselves, each once.
  absl::StatusOr<std::vector<Peer>> Await(std::vector<int> expected, Clock::time_point deadline);

 private:
  struct Stranger {
    ddprun::UniqueFd socket;
    Clock::time_point deadline;
    Hello hello;
    size_t received = 0;
  };
  enum class Verdict { kWaiting, kProved, kDropped };

  Acceptor(ddprun::UniqueFd socket, uint16_t port, int rank, const Nonce& nonce)
      : socket_(std::move(socket)), port_(port), rank_(rank), nonce_(nonce) {}
  void Poll(Clock::time_point deadline);
  Verdict Hear(Stranger& stranger);

  const ddprun::UniqueFd socket_;
  const uint16_t port_;
  const int rank_;
  const Nonce nonce_;
  std::vector<int> expected_;
  std::vector<Stranger> strangers_;
  std::vector<Peer> peers_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_ACCEPTOR_H_
