// A listening socket that believes nobody who cannot prove itself.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_ACCEPTOR_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_ACCEPTOR_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/op.h"
#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {

class Acceptor {
 public:
  // A connection that has not proved itself by then is dropped: within 5 s whatever happens.
  static constexpr std::chrono::milliseconds kHelloTimeout{4000};
  static constexpr size_t kMaxStrangers = 64;
  // Where all places are taken, one silent for so long makes room: the others wait in the kernel's
  // queue, where they are neither heard nor dropped.
  static constexpr std::chrono::milliseconds kPatience{1000};

  // Listens on `address`, port chosen by the kernel. Unavailable with errno. `nonce` is this rank's
  // own. With a `key` only who has it is believed, and the links are sealed; null: they are plain.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& address, int rank,
                                                          const Nonce& nonce,
                                                          std::shared_ptr<const LinkKey> key);
  uint16_t port() const { return port_; }

  struct Peer {
    int rank;
    ddprun::UniqueFd socket;
    std::unique_ptr<SealedChannel> sealed{};  // null: a plain link
  };
  // Waits until all of `expected` have connected and proved themselves, each once, then closes the
  // port and all other connections. DeadlineExceeded names those who did not come; Cancelled after
  // Stop(). Call it once.
  absl::StatusOr<std::vector<Peer>> Await(std::vector<int> expected, Clock::time_point deadline);
  // Ends Await() soon. From any thread.
  void Stop() { is_stopped_ = true; }

 private:
  struct Stranger {
    ddprun::UniqueFd socket;
    Clock::time_point since;
    Hello hello;
    size_t received = 0;
    // Of a sealed link, once its hello was answered.
    std::unique_ptr<LinkSecrets> secrets{};
    Key proof{};
    size_t proof_received = 0;
  };
  enum class Verdict { kWaiting, kProved, kDropped };

  Acceptor(ddprun::UniqueFd socket, uint16_t port, int rank, const Nonce& nonce,
           std::shared_ptr<const LinkKey> key)
      : port_(port), rank_(rank), nonce_(nonce), key_(std::move(key)), socket_(std::move(socket)) {}
  void Poll(Clock::time_point deadline);
  void HearAll(const std::vector<pollfd>& polled);
  void Welcome(Stranger stranger);
  void AcceptAll();
  Verdict Hear(Stranger& stranger);
  Verdict Answer(Stranger& stranger);
  Verdict HearProof(Stranger& stranger);
  bool IsExpected(int rank) const;

  const uint16_t port_;
  const int rank_;
  const Nonce nonce_;
  const std::shared_ptr<const LinkKey> key_;
  std::atomic<bool> is_stopped_{false};
  // Of the thread in Await().
  ddprun::UniqueFd socket_;
  std::vector<int> expected_;
  int refused_ = 0;       // the last error of accept() that is no passing one
  absl::Status failure_;  // which ends Await()
  std::vector<Stranger> strangers_;
  std::vector<Peer> peers_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_ACCEPTOR_H_
