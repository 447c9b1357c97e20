// A server under test on a thread of its own, and a client that says whatever a test wants.
#ifndef DDPRUN_TESTS_LAUNCHER_CONTROL_HTTP_TESTING_H_
#define DDPRUN_TESTS_LAUNCHER_CONTROL_HTTP_TESTING_H_

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "launcher/control/http_server.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/launcher/control/short_dir.h"

namespace ddprun::launcher::testing {

// Has a control socket and a port. Its handler runs on the server's thread.
class TestServer {
 public:
  explicit TestServer(HttpServer::Handler handler);
  ~TestServer();

  const std::string& socket_path() const { return socket_path_; }
  uint16_t port() const { return port_; }
  // Runs `work` on the server's thread, and waits for it.
  void Do(const std::function<void(HttpServer&)>& work);
  void Publish(const std::string& event);
  // Waits until so many streams are open.
  bool AwaitStreams(size_t count);

 private:
  ShortDir dir_;
  std::string socket_path_;
  uint16_t port_ = 0;
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

// A connection. Every wait ends after 20 s, with what had come.
class RawClient {
 public:
  // To the control socket, or to a port of 127.0.0.1, from 127.0.0.`host`.
  explicit RawClient(const std::string& socket_path);
  explicit RawClient(uint16_t port, uint8_t host = 1);

  // False: the other end is closed.
  bool Send(const std::string& bytes);
  // All that has come and is not taken yet, once it holds `part`.
  std::string ReadUntil(const std::string& part);
  // ...once the other end is closed.
  std::string ReadAll();
  // Takes what has come up to the end of the first `part`.
  std::string Take(const std::string& part);
  void HalfClose();
  void Close() { fd_ = UniqueFd(); }
  int fd() const { return fd_.get(); }

 private:
  // False: the end, or the time is over.
  bool ReadMore();

  UniqueFd fd_;
  std::string read_;
};

// Waits up to 20 s.
bool Await(const std::function<bool()>& claim);

}  // namespace ddprun::launcher::testing

#endif  // DDPRUN_TESTS_LAUNCHER_CONTROL_HTTP_TESTING_H_
