#include "worker_runtime/comm/messages/message_peers.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddp::internal {

std::string Encode(const MessagePeers& peers) {
  std::string text = absl::StrCat(NonceText(peers.hello), ",", NonceText(peers.answer));
  const std::string* last = nullptr;
  for (const MessagePeers::Place& place : peers.places) {
    if (last == nullptr || *last != place.address) absl::StrAppend(&text, ",", place.address, "=");
    absl::StrAppend(&text, absl::Hex(place.port, absl::kZeroPad4));
    last = &place.address;
  }
  return text;
}

absl::StatusOr<MessagePeers> DecodeMessagePeers(const std::string& text, int world_size) {
  const auto garbage = [&] {
    return absl::InvalidArgumentError(absl::StrCat("the store holds no places for messages of ",
                                                   world_size, " ranks: \"", text.substr(0, 100),
                                                   "\""));
  };
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  MessagePeers peers;
  if (parts.size() < 2 || !ParseNonce(parts[0], &peers.hello) ||
      !ParseNonce(parts[1], &peers.answer)) {
    return garbage();
  }
  for (size_t i = 2; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> run =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    if (run.second.empty() || run.second.size() % 4 != 0) return garbage();
    for (size_t at = 0; at < run.second.size(); at += 4) {
      uint32_t port = 0;
      if (!absl::SimpleHexAtoi(run.second.substr(at, 4), &port) || port > UINT16_MAX) {
        return garbage();
      }
      peers.places.push_back({run.first, static_cast<uint16_t>(port)});
    }
  }
  if (peers.places.size() != static_cast<size_t>(world_size)) return garbage();
  return peers;
}

}  // namespace ddp::internal
