// A connection to a rank's port from somebody who does not belong to the group.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_COMM_TCP_INTRUDER_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_COMM_TCP_INTRUDER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

class Intruder {
 public:
  // Starts to connect to 127.0.0.1 and does not wait for it: the listener's queue may be full.
  explicit Intruder(uint16_t port);
  Intruder(Intruder&&) = default;
  Intruder& operator=(Intruder&&) = default;

  // As much of `bytes` as goes before the other side closes or stops reading for 30 s.
  void Say(const std::string& bytes);
  // Waits, at most 30 s, until the other side has closed. `heard` gets what it said before.
  bool IsDropped(std::string* heard = nullptr);
  // Whether the other side keeps the connection for so long, and says nothing.
  bool IsKept(std::chrono::milliseconds time) const;
  // Whether nobody listens there.
  bool IsRefused();

 private:
  UniqueFd socket_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_COMM_TCP_INTRUDER_H_
