// A small HTTP server for the agent: answers on its executor, and waits for nobody.
//
// Two kinds of doors: the control socket, whose peers are this user's, and a TCP port, which is for
// reading alone and believes nobody: it takes GET and HEAD, a Host that is this machine, and no
// page of another origin.
#ifndef DDPRUN_LAUNCHER_CONTROL_HTTP_SERVER_H_
#define DDPRUN_LAUNCHER_CONTROL_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "rendezvous/base/unique_fd.h"

namespace boost::asio {
class io_context;
}

namespace ddprun::launcher {

struct HttpRequest {
  std::string method;                        // "GET"; HEAD is told as GET
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded
  bool is_local = false;                     // over the control socket
  std::string door;                          // which one (Listen)
  std::string accept;                        // what it would like to get
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  // Not empty: the connection stays open and gets what is published on this channel from now on,
  // `body` first.
  std::string channel = {};
};

class HttpServer {
 public:
  // Connections of one door, so that no scrape storm and no silent reader takes the agent's
  // descriptors. Beyond them one is closed, so that nobody keeps others out for ever: of a port's
  // one of the address that has most, the oldest that waits for a request, else the oldest that is
  // sent a reply, else its oldest stream. One that waits for an answer of ours is left alone, and
  // where that address has no other the next busiest one's goes. Where there is none, and at the
  // control socket, the newest is closed.
  static constexpr size_t kMaxConnections = 64;

  // Called exactly once, now or later, on the executor.
  using Answer = std::function<void(HttpReply)>;
  using Handler = std::function<void(const HttpRequest&, Answer)>;

  HttpServer(boost::asio::io_context& io, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves what connects to `listening`, which is non-blocking. `is_local`: a control socket.
  // `host_names`: what else than an address, localhost and this machine's name a Host may be.
  void Listen(UniqueFd listening, bool is_local, std::set<std::string> host_names = {},
              std::string door = "");
  // To all streams of the channel. One that has not taken the last one yet gets the newest only.
  void Publish(const std::string& channel, const std::shared_ptr<const std::string>& event);
  size_t stream_count(const std::string& channel) const;
  // Closes doors and connections.
  void Close();

 private:
  class Door;
  class Connection;

  // Closes a connection of a port's door for one from `address`. False: none may be closed.
  bool MakeRoom(const Door& door, const std::string& address);

  boost::asio::io_context& io_;
  const Handler handler_;
  std::list<std::shared_ptr<Door>> doors_;
  std::set<std::shared_ptr<Connection>> connections_;
  uint64_t last_number_ = 0;  // of a connection
};

// Whether a browser's page at `host` ("localhost:8080") may be ours: an IP address, localhost, or
// one of `names`. [pure]
bool IsHostAllowed(const std::string& host, const std::set<std::string>& names);
// "/logs?rank=3" taken apart; false: it is no path. [pure]
bool ParseTarget(const std::string& target, HttpRequest& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_HTTP_SERVER_H_
