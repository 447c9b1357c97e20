// The client of the store's protocol behind ddp::Store. Internal: made by Store::Connect.
#ifndef DDPRUN_WORKER_RUNTIME_STORE_CLIENT_H_
#define DDPRUN_WORKER_RUNTIME_STORE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/store.h"
#include "rendezvous/store/wire.h"
#include "worker_runtime/comm/host_key.h"
#include "worker_runtime/store_socket.h"

namespace ddp::internal {

// Store::Connect by a clock, which outlives the store.
absl::StatusOr<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                                    Store::Milliseconds timeout,
                                                    const ddprun::Clock& clock);

class StoreClient : public Store {
 public:
  // Proves that the peer is a store, then owns the connection.
  static absl::StatusOr<std::unique_ptr<StoreClient>> Greet(ddprun::UniqueFd connection,
                                                            Milliseconds timeout, Deadline deadline,
                                                            const ddprun::Clock& clock);
  // Where it was connected to, for Clone().
  void set_place(std::string host, uint16_t port) {
    host_ = std::move(host);
    port_ = port;
  }

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) override;
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override;
  absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override;
  absl::StatusOr<bool> Delete(const std::string& key) override;
  absl::StatusOr<int64_t> KeyCount() override;
  absl::StatusOr<std::unique_ptr<Store>> Clone(Milliseconds timeout) const override {
    return ConnectStore(host_, port_, timeout, clock_);
  }
  std::string LocalAddress() const override { return LocalAddressToward(host_, port_); }
  absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                    Milliseconds timeout) override;
  absl::Status MultiSet(const std::vector<std::string>& keys,
                        const std::vector<std::string>& values) override;

 private:
  StoreClient(ddprun::UniqueFd connection, Milliseconds timeout, const ddprun::Clock& clock)
      : clock_(clock), socket_(std::move(connection), clock), timeout_(timeout) {}

  Deadline DefaultDeadline() const;
  // A request with its keys and values; checks the limits before a byte is sent.
  absl::Status Send(ddprun::rendezvous::StoreOp op, const std::vector<std::string_view>& fields,
                    Deadline deadline, int64_t number = 0);
  // A failure in the middle of a reply leaves no way to find the next one.
  absl::Status Lost(absl::Status status);
  absl::StatusOr<uint8_t> ReceiveByte(Deadline deadline);
  absl::StatusOr<int64_t> ReceiveNumber(Deadline deadline);
  absl::StatusOr<std::string> ReceivePayload(Deadline deadline);
  absl::Status CancelWait(const std::vector<std::string>& keys, Milliseconds timeout);

  const ddprun::Clock& clock_;
  StoreSocket socket_;
  const Milliseconds timeout_;
  std::string host_;
  uint16_t port_ = 0;
  absl::Status lost_;  // Not OK: why every further call fails.
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_STORE_CLIENT_H_
