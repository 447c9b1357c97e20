#include "worker_runtime/comm/look_for_word.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace ddp::internal {
namespace {

constexpr std::chrono::milliseconds kPatience(2000);

}  // namespace

std::optional<std::string> LookForWord(const Store& store, const std::string& key,
                                       Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) return std::nullopt;
  const auto own = store.Clone(std::min(left, kPatience));
  if (!own.ok()) return std::nullopt;
  const auto has = (*own)->Check({key});
  if (!has.ok() || !*has) return std::nullopt;
  auto word = (*own)->Get(key, std::min(left, kPatience));
  return word.ok() ? std::optional(*std::move(word)) : std::nullopt;
}

}  // namespace ddp::internal
