// Stores that are short of something.
#ifndef DDPRUN_TESTS_SUPPORT_ODD_STORES_H_
#define DDPRUN_TESTS_SUPPORT_ODD_STORES_H_

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

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_ODD_STORES_H_
