// A store client that sends and expects bytes, for tests of the server.
#ifndef DDPRUN_TESTS_RENDEZVOUS_STORE_RAW_CLIENT_H_
#define DDPRUN_TESTS_RENDEZVOUS_STORE_RAW_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_server.h"
#include "rendezvous/store/wire.h"

namespace ddprun::rendezvous {

class RawClient {
 public:
  // Connects to 127.0.0.1 (or ::1). A failed connect fails the running case.
  explicit RawClient(uint16_t port, bool is_ipv6 = false);
  // As above, and greets, as far as the answer.
  static RawClient Greeted(const StoreServer& server);

  void Send(std::string_view bytes);
  // Sends as much as the kernel takes without waiting; returns how much.
  size_t SendSome(std::string_view bytes);
  // What arrives until `size` bytes are there, the server closes, or the deadline is over.
  std::string Receive(size_t size);
  // Sends, then compares the whole reply.
  void Expect(std::string_view request, std::string_view reply);
  // True when the server closes, with nothing more to read, before the deadline.
  bool IsClosed();
  // Closes with a reset, as the kernel does for a killed process with unread data.
  void Reset();
  UniqueFd Release() { return std::move(fd_); }

 private:
  UniqueFd fd_;
};

// Requests and replies as bytes.
std::string Request(StoreOp op, const std::vector<std::string_view>& fields = {},
                    int64_t number = 0);
std::string Greeting();
std::string Number(int64_t value);
std::string Bytes(std::string_view value);
std::string Byte(char value);

// Waits until `condition` holds; false when it has not within 30 seconds.
bool Eventually(const std::function<bool()>& condition);

// Raises the limit on open files to at least `count`; false when that is not allowed.
bool AllowOpenFiles(uint64_t count);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_STORE_RAW_CLIENT_H_
