// A client of the job's key-value store: the launcher's, or PyTorch's own TCPStore.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_STORE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddp {

// One connection. Calls block, come from one thread at a time, and end by their timeout with
// DeadlineExceeded. A lost connection is Unavailable and final. A key has at most 8 KiB less one
// byte, a value at most 8 MiB. Longer ones are InvalidArgument. Values are bytes. The protocol's
// source is PyTorch's TCPStore. A Python process sees the same keys under the same names.
class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Connects, retries until `timeout`, and checks that a store answers. DeadlineExceeded names the
  // address and the last error. `timeout` also bounds each later call that has none of its own. If
  // such a call exceeds it, the connection is lost.
  static absl::StatusOr<std::unique_ptr<Store>> Connect(const std::string& host, uint16_t port,
                                                        Milliseconds timeout);
  virtual ~Store() = default;

  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key, then returns its value.
  virtual absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) = 0;
  // Adds to a decimal counter, which starts at 0. Returns the new value.
  virtual absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) = 0;
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;
  // Returns when all keys exist. DeadlineExceeded names the keys that it waited for.
  virtual absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  // Stores `desired` if the value is `expected`, or if the key is absent and `expected` empty.
  // Returns the value that the store then has. For an absent key with non-empty `expected` it
  // returns `expected`.
  virtual absl::StatusOr<std::string> CompareSet(const std::string& key,
                                                 const std::string& expected,
                                                 const std::string& desired) = 0;
  virtual absl::StatusOr<bool> Delete(const std::string& key) = 0;
  // How many keys with a value the whole store holds, including other prefixes.
  virtual absl::StatusOr<int64_t> KeyCount() = 0;

  // Another connection to the same keys, for a separate thread. Any thread. Stores that a caller
  // implements do not have it: Unimplemented.
  virtual absl::StatusOr<std::unique_ptr<Store>> Clone(Milliseconds timeout) const;
  // The address from which this machine talks to the store, if others may reach it. "" if it is not
  // known. Any thread.
  virtual std::string LocalAddress() const { return ""; }

  // Waits for all keys, then returns their values in the same order.
  virtual absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                            Milliseconds timeout);
  // REQUIRES: as many values as keys (else InvalidArgument).
  virtual absl::Status MultiSet(const std::vector<std::string>& keys,
                                const std::vector<std::string>& values);
};

// The same store with "<prefix>/" before every key, as PyTorch's PrefixStore. It borrows the store
// or owns it.
class PrefixStore : public Store {
 public:
  PrefixStore(std::string prefix, Store& store) : prefix_(std::move(prefix)), store_(store) {}
  PrefixStore(std::string prefix, std::unique_ptr<Store> store)
      : prefix_(std::move(prefix)), owned_(std::move(store)), store_(*owned_) {}

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) override;
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override;
  absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override;
  absl::StatusOr<bool> Delete(const std::string& key) override;
  absl::StatusOr<int64_t> KeyCount() override;
  absl::StatusOr<std::unique_ptr<Store>> Clone(Milliseconds timeout) const override;
  std::string LocalAddress() const override { return store_.LocalAddress(); }
  absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                    Milliseconds timeout) override;
  absl::Status MultiSet(const std::vector<std::string>& keys,
                        const std::vector<std::string>& values) override;

 private:
  std::string Prefixed(const std::string& key) const;
  std::vector<std::string> Prefixed(const std::vector<std::string>& keys) const;

  const std::string prefix_;
  const std::unique_ptr<Store> owned_;  // null if the store is borrowed
  Store& store_;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_STORE_H_
