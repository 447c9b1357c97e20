// Client of the job's key-value store: the launcher's, or PyTorch's own TCPStore.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_STORE_H_
#define DDPRUN_WORKER_RUNTIME_DDP_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddp {

// One connection. Calls block, come from one thread at a time, and end by their timeout with
// DeadlineExceeded; a lost connection is Unavailable and final. Values are bytes.
class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Connects, tries again until `timeout`, and proves that a store answers.
  static absl::StatusOr<std::unique_ptr<Store>> Connect(const std::string& host, uint16_t port,
                                                        Milliseconds timeout);
  virtual ~Store() = default;

  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key, then returns its value.
  virtual absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) = 0;
  // Adds to a decimal counter, which starts at 0; returns the new value.
  virtual absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) = 0;
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;
  // Returns when all keys exist. On DeadlineExceeded the message names the keys waited for.
  virtual absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  // Stores `desired` if the value is `expected` (or the key is absent and `expected` empty).
  // Returns what the store now holds; for an absent key with non-empty `expected`: `expected`.
  virtual absl::StatusOr<std::string> CompareSet(const std::string& key,
                                                 const std::string& expected,
                                                 const std::string& desired) = 0;
  virtual absl::StatusOr<bool> Delete(const std::string& key) = 0;
  virtual absl::StatusOr<int64_t> KeyCount() = 0;
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_STORE_H_
