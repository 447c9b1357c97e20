// HTTP on loopback, as little of it as the tests of the metrics need.
#ifndef DDPRUN_TESTS_LAUNCHER_METRICS_HTTP_H_
#define DDPRUN_TESTS_LAUNCHER_METRICS_HTTP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

// The body of the answer to GET `target` from 127.0.0.1:`port`, whatever its status; none where
// nobody answers within seconds.
std::optional<std::string> HttpGet(uint16_t port, const std::string& target);

// For a query string.
std::string UrlEncoded(const std::string& text);

// Listens on a port of 127.0.0.1, on a thread of its own; one request on each connection.
class PageServer {
 public:
  struct Page {
    std::string content_type;
    std::string body;
  };
  // `render` is called on that thread, with all of the request's header.
  explicit PageServer(std::function<Page(const std::string& request)> render);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  std::string Url(const std::string& path) const;
  int requests() const { return requests_; }

 private:
  void Serve();

  const std::function<Page(const std::string& request)> render_;
  std::atomic<int> requests_{0};
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_METRICS_HTTP_H_
