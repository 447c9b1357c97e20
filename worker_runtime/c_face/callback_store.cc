#include "worker_runtime/c_face/callback_store.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "worker_runtime/c_face/answer.h"

namespace ddp::internal {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int uses = 0;

template <typename Function>
absl::StatusOr<std::string> Called(const char* call, const std::string& key,
                                   const Function& function) {
  return Answered(absl::StrCat("the program's store: ", call, " \"", key, "\""), function);
}

absl::Status NotNeeded(const char* call) {
  return absl::UnimplementedError(absl::StrCat("the program's store: it has no ", call));
}

}  // namespace

CallbackStore::Use::Use() { ++uses; }
CallbackStore::Use::~Use() { --uses; }

CallbackStore::CallbackStore(const ddp_store& store)
    : functions_(store), address_(store.address == nullptr ? "" : store.address) {}

absl::Status CallbackStore::CheckMayCall() const {
  if (functions_.is_for_any_thread != 0 || uses > 0) return absl::OkStatus();
  return absl::UnavailableError("the program's store is not for threads of the library");
}

absl::Status CallbackStore::Set(const std::string& key, const std::string& value) {
  if (absl::Status status = CheckMayCall(); !status.ok()) return status;
  return Called("set", key,
                [&](ddp_answer* answer) {
                  return functions_.set(functions_.context, key.c_str(), value.data(), value.size(),
                                        answer);
                })
      .status();
}

absl::StatusOr<std::string> CallbackStore::Get(const std::string& key, Milliseconds timeout) {
  if (absl::Status status = CheckMayCall(); !status.ok()) return status;
  return Called("get", key, [&](ddp_answer* answer) {
    return functions_.get(functions_.context, key.c_str(), timeout.count(), answer);
  });
}

absl::StatusOr<bool> CallbackStore::Check(const std::vector<std::string>& keys) {
  if (absl::Status status = CheckMayCall(); !status.ok()) return status;
  std::vector<const char*> texts;
  texts.reserve(keys.size());
  for (const std::string& key : keys) texts.push_back(key.c_str());
  int are_there = 0;
  const auto called = Called("check", keys.empty() ? "" : keys[0], [&](ddp_answer* answer) {
    return functions_.check(functions_.context, texts.data(), texts.size(), &are_there, answer);
  });
  if (!called.ok()) return called.status();
  return are_there != 0;
}

absl::Status CallbackStore::Wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (const std::string& key : keys) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    const auto value = Get(key, std::max(Milliseconds(1), left));
    if (!value.ok()) return value.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CallbackStore::CompareSet(const std::string& key,
                                                      const std::string& expected,
                                                      const std::string& desired) {
  if (functions_.set_if_absent == nullptr || !expected.empty()) return NotNeeded("compare_set");
  if (absl::Status status = CheckMayCall(); !status.ok()) return status;
  return Called("set_if_absent", key, [&](ddp_answer* answer) {
    return functions_.set_if_absent(functions_.context, key.c_str(), desired.data(), desired.size(),
                                    answer);
  });
}

absl::StatusOr<std::unique_ptr<Store>> CallbackStore::Clone(Milliseconds) const {
  if (absl::Status status = CheckMayCall(); !status.ok()) return status;
  ddp_store store = functions_;
  store.address = address_.c_str();
  return std::make_unique<CallbackStore>(store);
}

absl::StatusOr<int64_t> CallbackStore::Add(const std::string&, int64_t) { return NotNeeded("add"); }
absl::StatusOr<bool> CallbackStore::Delete(const std::string&) { return NotNeeded("delete"); }
absl::StatusOr<int64_t> CallbackStore::KeyCount() { return NotNeeded("count of its keys"); }

}  // namespace ddp::internal
