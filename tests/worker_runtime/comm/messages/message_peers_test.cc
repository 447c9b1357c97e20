#include "worker_runtime/comm/messages/message_peers.h"

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

TEST_CASE("peers: what is told is what is heard") {
  MessagePeers peers;
  peers.hello[0] = 1;
  peers.answer[15] = 255;
  peers.places = {{"10.0.0.1", 1}, {"10.0.0.1", 65535}, {"fe80::1", 29400}, {"10.0.0.1", 0}};
  const auto heard = DecodeMessagePeers(Encode(peers), 4);
  REQUIRE(heard.ok());
  CHECK(*heard == peers);
  // An address stands once for the ranks of a node.
  CHECK(Encode(peers) == NonceText(peers.hello) + "," + NonceText(peers.answer) +
                             ",10.0.0.1=0001ffff,fe80::1=72d8,10.0.0.1=0000");
}

TEST_CASE("peers: anything else is refused") {
  const std::string secrets = std::string(32, '0') + "," + std::string(32, '1');
  REQUIRE(DecodeMessagePeers(secrets + ",a=00010002", 2).ok());
  for (const std::string& text :
       {std::string(), secrets, secrets + ",a=0001", secrets + ",a=000100020003",
        secrets + ",a=0001000", secrets + ",a=0001000g", secrets + ",a00010002",
        secrets.substr(1) + ",a=00010002", secrets + ",a=0001,b"}) {
    CAPTURE(text);
    CHECK(absl::IsInvalidArgument(DecodeMessagePeers(text, 2).status()));
  }
}

}  // namespace
}  // namespace ddp::internal
