// A ddp::Store of a program's own functions.
#ifndef DDPRUN_WORKER_RUNTIME_C_FACE_CALLBACK_STORE_H_
#define DDPRUN_WORKER_RUNTIME_C_FACE_CALLBACK_STORE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/c.h"
#include "ddp/store.h"

namespace ddp::internal {

// What the forming of a group asks of a store, and no more. Clones have the same functions and the
// same context. Where those are not for any thread, calls outside of a CallbackStore::Use fail:
// they are the failure board's, which does without.
class CallbackStore final : public Store {
 public:
  // REQUIRES: set, get and check are there.
  explicit CallbackStore(const ddp_store& store);

  // While it lives, its thread is one whose caller has lent it to the functions.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, Milliseconds timeout) override;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override;
  absl::Status Wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  // Unimplemented but for an empty `expected`.
  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override;
  absl::StatusOr<std::unique_ptr<Store>> Clone(Milliseconds timeout) const override;
  std::string LocalAddress() const override { return address_; }

  // Unimplemented.
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override;
  absl::StatusOr<bool> Delete(const std::string& key) override;
  absl::StatusOr<int64_t> KeyCount() override;

 private:
  absl::Status CheckMayCall() const;

  const ddp_store functions_;  // but for the address, which the caller may have freed
  const std::string address_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_C_FACE_CALLBACK_STORE_H_
