// The store's protocol: two connections, one after the other, of which each may wait for the other.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/kv_store.h"
#include "rendezvous/store/dispatch.h"
#include "rendezvous/store/wire.h"
#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {
namespace {

using fuzz::Promise;

// Small, so that bounds are met.
constexpr StoreLimits kLimits{
    .key_bytes = 64, .payload_bytes = 512, .keys_per_command = 16, .command_bytes = 1024};
constexpr size_t kMaxReplyBytes = 2048;

struct Connection {
  RequestParser parser;
  StoreSession session;
  std::string held;  // received and not carried out
  std::string replies;
  bool is_closed = false;
};

// What the server does with what it has received: until a request waits or is not whole.
void Execute(Connection& connection, KvStore& store) {
  while (!connection.is_closed && !connection.held.empty()) {
    const bool is_cancel = connection.held[0] == static_cast<char>(StoreOp::kCancelWait);
    if (connection.session.ticket != 0 && !is_cancel) return;
    StoreCommand command;
    size_t used = 0;
    const auto result = connection.parser.Parse(connection.held, kLimits, &command, &used);
    if (result == RequestParser::Result::kNeedMore) return;
    if (result == RequestParser::Result::kBad) {
      connection.is_closed = true;
      return;
    }
    std::string again;
    AppendRequest(command, &again);
    Promise(again == connection.held.substr(0, used), "a request is encoded as it was received");
    connection.is_closed = !DispatchStoreCommand(command, kMaxReplyBytes, &connection.session,
                                                 &store, &connection.replies);
    connection.held.erase(0, used);
  }
}

// Both replies, and how it ended.
std::string Serve(const std::array<std::vector<std::string_view>, 2>& streams) {
  KvStore store(4096);
  std::array<Connection, 2> connections;
  for (size_t i = 0; i < streams.size(); ++i) {
    connections[i].session.client = i;
    for (const std::string_view piece : streams[i]) {
      connections[i].held.append(piece);
      Execute(connections[i], store);
    }
  }
  std::vector<KvStore::Woken> woken;
  for (store.TakeWoken(&woken); !woken.empty(); store.TakeWoken(&woken)) {
    for (const KvStore::Woken& one : std::vector(std::move(woken))) {
      Connection& connection = connections[one.client];
      if (StopWaiting(one.ticket, &connection.session, &connection.replies)) {
        Execute(connection, store);
      }
    }
    woken.clear();
  }
  Promise(store.bytes() <= 4096, "the store keeps its bound");
  std::string outcome;
  for (const Connection& connection : connections) {
    AppendBytes(connection.replies, &outcome);
    AppendByte(connection.is_closed ? 'c' : 'o', &outcome);
    AppendI64(static_cast<int64_t>(connection.held.size()), &outcome);
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const size_t of_first = input.Number(2);
  const auto first = fuzz::Divisions(input.Text(of_first));
  const auto second = fuzz::Divisions(input.Text(size));
  const std::string whole = Serve({first[0], second[0]});
  for (size_t i = 1; i < first.size(); ++i) {
    Promise(Serve({first[i], second[i]}) == whole, "the replies depend on the bytes alone");
  }
  return 0;
}

}  // namespace ddprun::rendezvous
