// A store's port behind which requests for one key are held: a rank whose MASTER_PORT it is stands
// still at a known place, however fast the machine.
#ifndef DDPRUN_TESTS_E2E_KEY_GATE_H_
#define DDPRUN_TESTS_E2E_KEY_GATE_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

// Forwards bytes between a port of its own and 127.0.0.1:`target`, which may listen later. What a
// client sends from the first mention of `key` on waits for Open(). One thread.
class KeyGate {
 public:
  KeyGate(uint16_t target, std::string key);
  ~KeyGate();
  uint16_t port() const { return port_; }
  // Whether a request is held.
  bool HoldsOne() const { return holds_one_; }
  void Open();

 private:
  struct Route {
    UniqueFd client, server;
    std::string held;
    bool is_held = false;
    bool is_over = false;
  };
  void Run();
  void Accept();
  void Forward(Route& route, bool from_client);

  const uint16_t target_;
  const std::string key_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  UniqueFd wake_;
  std::atomic<bool> is_open_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> holds_one_{false};
  std::list<Route> routes_;  // the thread's own
  std::thread thread_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_KEY_GATE_H_
