#include "rendezvous/wire/hello.h"

#include <algorithm>
#include <string_view>

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kPrefix = "ddprun/1 run ";
constexpr size_t kMaxRunIdBytes = 256;

std::string Shorten(const std::string& run_id) { return run_id.substr(0, kMaxRunIdBytes); }

}  // namespace

std::string MakeHelloReply(const std::string& run_id) {
  return std::string(kPrefix) + Shorten(run_id) + "\n";
}

HelloAnswer ParseHelloReply(const std::string& bytes, const std::string& run_id,
                            std::string& other_run) {
  const size_t common = std::min(bytes.size(), kPrefix.size());
  if (std::string_view(bytes).substr(0, common) != kPrefix.substr(0, common)) {
    return HelloAnswer::kForeign;
  }
  const size_t end = bytes.find('\n');
  if (end == std::string::npos) {
    return bytes.size() > kMaxHelloReplyBytes ? HelloAnswer::kForeign : HelloAnswer::kIncomplete;
  }
  const std::string found = bytes.substr(kPrefix.size(), end - kPrefix.size());
  if (found == Shorten(run_id)) return HelloAnswer::kOurs;
  other_run = found;
  return HelloAnswer::kOtherRun;
}

}  // namespace ddprun::rendezvous
