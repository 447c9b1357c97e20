// Stores that are short of something.
#ifndef DDPRUN_TESTS_SUPPORT_ODD_STORES_H_
#define DDPRUN_TESTS_SUPPORT_ODD_STORES_H_

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "ddp/store.h"

namespace ddprun::testing {

// Where the first `times` keys would be set there is no memory.
class ShortStore final : public ddp::PrefixStore {
 public:
  explicit ShortStore(ddp::Store& store, int times = 1) : PrefixStore("", store), left_(times) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    if (left_ > 0) {
      --left_;
      throw std::bad_alloc();
    }
    return PrefixStore::Set(key, value);
  }

 private:
  int left_;
};

// Notes whether it is asked, and how long its clones may take to answer.
class AskedStore final : public ddp::PrefixStore {
 public:
  explicit AskedStore(ddp::Store& store) : PrefixStore("", store) {}
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    has_been_asked = true;
    return PrefixStore::Check(keys);
  }
  absl::StatusOr<std::unique_ptr<ddp::Store>> Clone(Milliseconds timeout) const override {
    longest = std::max(longest, timeout);
    return PrefixStore::Clone(timeout);
  }

  bool has_been_asked = false;
  mutable Milliseconds longest{0};
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_ODD_STORES_H_
