#include "rendezvous/etcd/leader_key.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kFirstWord[] = "ddprun";
constexpr char kVersion[] = "1";
constexpr size_t kMaxValueBytes = 1024;

// "HOST:PORT", "[::1]:PORT".
bool ParsePlace(const std::string& text, Leader& leader) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  std::string address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  uint32_t port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 || port > 65535) return false;
  leader.address = std::move(address);
  leader.port = static_cast<uint16_t>(port);
  return true;
}

}  // namespace

std::string LeaderKeyOf(const std::string& prefix, const std::string& run_id) {
  return absl::StrCat(prefix, "/", run_id, "/leader");
}

std::string JobKeyOf(const std::string& prefix, const std::string& run_id) {
  return absl::StrCat(prefix, "/", run_id, "/job");
}

std::string EncodeLeader(const Leader& leader) {
  return absl::StrCat(kFirstWord, " ", kVersion, " ", EndpointText(leader.address, leader.port),
                      " ", EscapeControl(leader.host));
}

std::optional<Leader> DecodeLeader(const std::string& value) {
  if (value.size() > kMaxValueBytes) return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(value, absl::MaxSplits(' ', 3));
  Leader leader;
  if (words.size() != 4 || words[0] != kFirstWord || words[1] != kVersion) return std::nullopt;
  if (!ParsePlace(words[2], leader)) return std::nullopt;
  leader.host = EscapeControl(words[3]);
  // Whatever is not exactly what would have been written is not ours.
  if (EncodeLeader(leader) != value) return std::nullopt;
  return leader;
}

}  // namespace ddprun::rendezvous
