// What a store does when the kernel takes its replies in pieces. The kernel's answers decide which
// path it takes and depend on when the other end reads, so here they come from a script.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <string>

#include <doctest/doctest.h>

#include "rendezvous/store/store_server.h"
#include "tests/rendezvous/store/raw_client.h"
#include "tests/support/store_server.h"

namespace ddprun::rendezvous {
namespace {

using enum StoreOp;

enum class Script {
  kNone,
  kRefuseThenTakeAll,  // The socket is full; at the next try the other end has read everything.
  kLeaveOneByte,       // There is always room, but never for the last byte.
};

constexpr size_t kValueSize = 100 << 10;  // A reply that alone exceeds what may stay unread.

std::atomic<Script> script{Script::kNone};
// Used by the one server thread there is.
bool refuse_next = false;

ssize_t Fail(int error) {
  errno = error;
  return -1;
}

// All of it, however often the other end must read for that.
ssize_t TakeAll(int fd, const char* data, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
    if (poll(&room, 1, 30'000) <= 0) return Fail(ETIMEDOUT);
    const ssize_t count = sendto(fd, data + sent, size - sent, MSG_NOSIGNAL, nullptr, 0);
    if (count < 0) return count;
    sent += static_cast<size_t>(count);
  }
  return static_cast<ssize_t>(size);
}

ssize_t Play(int fd, const char* data, size_t size, int flags) {
  const bool is_reply = size >= kValueSize;
  switch (script) {
    case Script::kNone:
      break;
    case Script::kRefuseThenTakeAll:
      if (!is_reply) break;
      refuse_next = !refuse_next;
      return refuse_next ? Fail(EAGAIN) : TakeAll(fd, data, size);
    case Script::kLeaveOneByte:
      if (is_reply) {
        refuse_next = true;
        return TakeAll(fd, data, size - 1);
      }
      if (!refuse_next) break;
      refuse_next = false;
      return Fail(EAGAIN);
  }
  return sendto(fd, data, size, flags, nullptr, 0);
}

// Follows `script` once the value to ask for is in the store.
class Scripted {
 public:
  Scripted(Script the_script, const StoreServer& server) : client_(RawClient::Greeted(server)) {
    client_.Send(Request(kSet, {"/v", value_}));
    client_.Expect(Request(kGetNumKeys), Number(1));
    refuse_next = false;
    script = the_script;
  }
  ~Scripted() { script = Script::kNone; }

  // The number of replies that came to `count` requests sent at once.
  int CountReplies(int count) {
    std::string requests;
    for (int i = 0; i < count; ++i) requests += Request(kGet, {"/v"});
    client_.Send(requests);
    int replies = 0;
    while (replies < count && client_.Receive(kValueSize + 8) == Bytes(value_)) ++replies;
    return replies;
  }

 private:
  const std::string value_ = std::string(kValueSize, 'v');
  RawClient client_;
};

TEST_CASE("store server: requests held back go on when the replies leave at the second try") {
  const auto server = testing::StartStoreServer();
  Scripted scripted(Script::kRefuseThenTakeAll, *server);
  CHECK(scripted.CountReplies(10) == 10);
}

TEST_CASE("store server: replies that were taken do not count against its bound") {
  StoreServer::Options options;
  options.max_transit_bytes = 1 << 20;
  const auto server = testing::StartStoreServer(options);
  Scripted scripted(Script::kLeaveOneByte, *server);
  CHECK(scripted.CountReplies(100) == 100);
  CHECK(server->stats().dropped_protocol == 0);
}

}  // namespace
}  // namespace ddprun::rendezvous

// In place of the C library's, for everything in this program.
extern "C" ssize_t send(int fd, const void* data, size_t size, int flags) {
  return ddprun::rendezvous::Play(fd, static_cast<const char*>(data), size, flags);
}
