// Bare sockets of tests: clients, ports that are free, programs that are not ours.
#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_SOCKETS_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_SOCKETS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::rendezvous {

// A port that nobody else is given while this lives, and that a listener of ours can still take
// (both sides set SO_REUSEADDR, and this one does not listen).
class ReservedPort {
 public:
  ReservedPort();
  uint16_t port() const { return port_; }

 private:
  uint16_t port_ = 0;  // before the socket, whose initialisation sets it
  UniqueFd fd_;
};

// Connects to `ip`, blocking. Not open: nobody listens there.
UniqueFd TryConnectTo(uint16_t port, const char* ip = "127.0.0.1");
// As TryConnectTo; somebody must listen.
UniqueFd ConnectTo(uint16_t port);
void SendAll(int fd, const std::string& bytes);
// What comes until the other side closes (or 30 s pass: then "(still open)" is appended).
std::string ReadToEnd(int fd);

// A program that is not ours: accepts, answers what `answer` says to the first bytes, and closes.
// An empty `answer` never accepts. `port` 0: one that the system chooses.
class ForeignServer {
 public:
  explicit ForeignServer(const std::string& answer, bool accepts = true, uint16_t port = 0);
  ~ForeignServer();
  uint16_t port() const { return port_; }

 private:
  uint16_t port_;
  UniqueFd listener_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

// Forwards bytes between a port of its own and `target`, until Cut, Hold or Stall.
class Proxy {
 public:
  explicit Proxy(uint16_t target);
  ~Proxy();
  uint16_t port() const { return port_; }
  // Resets every connection there is. New ones are served.
  void Cut();
  // Resets every connection there is; new ones are taken but hear nothing until Release.
  void Hold();
  // Keeps every connection, and carries nothing until Release.
  void Stall();
  void Release();
  // Whether somebody has connected and is held: the break has been noticed.
  bool HasWaiting();

 private:
  void CutLocked();
  void Run();
  void Forward(int from, int to);

  const uint16_t target_;
  uint16_t port_ = 0;
  UniqueFd listener_;
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;
  std::condition_variable released_;
  bool is_held_ = false;  // guarded by mutex_, like what follows
  bool is_stalled_ = false;
  bool has_waiting_ = false;
  std::list<UniqueFd> fds_;
  std::list<std::thread> forwarders_;
  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_SOCKETS_H_
