#include "ddp/store.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddp {

absl::StatusOr<std::vector<std::string>> Store::MultiGet(const std::vector<std::string>& keys,
                                                         Milliseconds timeout) {
  if (absl::Status status = Wait(keys, timeout); !status.ok()) return status;
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) {
    auto value = Get(key, timeout);
    if (!value.ok()) return value.status();
    values.push_back(*std::move(value));
  }
  return values;
}

absl::Status Store::MultiSet(const std::vector<std::string>& keys,
                             const std::vector<std::string>& values) {
  if (keys.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("store: MultiSet: ", keys.size(), " keys, ", values.size(), " values"));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (absl::Status status = Set(keys[i], values[i]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Clone(Milliseconds) const {
  return absl::UnimplementedError("store: this one has no further connection to give");
}

absl::StatusOr<std::unique_ptr<Store>> PrefixStore::Clone(Milliseconds timeout) const {
  auto store = store_.Clone(timeout);
  if (!store.ok()) return store.status();
  return std::make_unique<PrefixStore>(prefix_, *std::move(store));
}

std::string PrefixStore::Prefixed(const std::string& key) const {
  return absl::StrCat(prefix_, "/", key);
}

std::vector<std::string> PrefixStore::Prefixed(const std::vector<std::string>& keys) const {
  std::vector<std::string> prefixed;
  prefixed.reserve(keys.size());
  for (const std::string& key : keys) prefixed.push_back(Prefixed(key));
  return prefixed;
}

absl::Status PrefixStore::Set(const std::string& key, const std::string& value) {
  return store_.Set(Prefixed(key), value);
}

absl::StatusOr<std::string> PrefixStore::Get(const std::string& key, Milliseconds timeout) {
  return store_.Get(Prefixed(key), timeout);
}

absl::StatusOr<int64_t> PrefixStore::Add(const std::string& key, int64_t amount) {
  return store_.Add(Prefixed(key), amount);
}

absl::StatusOr<bool> PrefixStore::Check(const std::vector<std::string>& keys) {
  return store_.Check(Prefixed(keys));
}

absl::Status PrefixStore::Wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  return store_.Wait(Prefixed(keys), timeout);
}

absl::StatusOr<std::string> PrefixStore::CompareSet(const std::string& key,
                                                    const std::string& expected,
                                                    const std::string& desired) {
  return store_.CompareSet(Prefixed(key), expected, desired);
}

absl::StatusOr<bool> PrefixStore::Delete(const std::string& key) {
  return store_.Delete(Prefixed(key));
}

absl::StatusOr<int64_t> PrefixStore::KeyCount() { return store_.KeyCount(); }

absl::StatusOr<std::vector<std::string>> PrefixStore::MultiGet(const std::vector<std::string>& keys,
                                                               Milliseconds timeout) {
  return store_.MultiGet(Prefixed(keys), timeout);
}

absl::Status PrefixStore::MultiSet(const std::vector<std::string>& keys,
                                   const std::vector<std::string>& values) {
  return store_.MultiSet(Prefixed(keys), values);
}

}  // namespace ddp
