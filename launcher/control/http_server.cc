#include "launcher/control/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/control/control_socket.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {
namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace {

using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Stream = boost::beast::basic_stream<Protocol>;

constexpr size_t kMaxHeaderBytes = 8192;
constexpr size_t kMaxBodyBytes = 65536;
// A request that has begun, a reply that is taken, and the silence between two requests.
constexpr std::chrono::seconds kPatience{10};
// One after the other, before the agent sees to its own work again.
constexpr int kMaxAccepts = 64;
// After a failed accept: no descriptor is left.
constexpr std::chrono::milliseconds kAcceptRest{100};

constexpr char kSecurity[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

}  // namespace

// One that listens. Shared with nobody: reactions that are under way when it goes find it gone.
class HttpServer::Door : public std::enable_shared_from_this<Door> {
 public:
  Door(HttpServer& server, UniqueFd listening, bool is_local, std::set<std::string> names,
       std::string name)
      : server_(server),
        listening_(server.io_, listening.Release()),
        rest_(server.io_),
        is_local_(is_local),
        names_(std::move(names)),
        name_(std::move(name)) {}

  void Wait() {
    listening_.async_wait(asio::posix::stream_descriptor::wait_read,
                          [weak = weak_from_this()](const error_code& error) {
                            const std::shared_ptr<Door> door = weak.lock();
                            if (!error && door != nullptr) door->AcceptSome();
                          });
  }

  bool is_local() const { return is_local_; }
  const std::set<std::string>& names() const { return names_; }
  const std::string& name() const { return name_; }
  size_t connections = 0;

 private:
  void AcceptSome();

  HttpServer& server_;
  asio::posix::stream_descriptor listening_;
  asio::steady_timer rest_;
  const bool is_local_;
  const std::set<std::string> names_;
  const std::string name_;
};

class HttpServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer& server, Door& door, Protocol::socket socket, std::string address)
      : server_(server),
        door_(door),
        number_(++server.last_number_),
        address_(std::move(address)),
        stream_(std::move(socket)) {
    ++door_.connections;
  }

  // In the order in which they make room for others; one that is owed an answer makes none.
  enum class Stage { kReading, kReplying, kStreaming, kAnswerOwed };

  void Read() {
    parser_.emplace();
    stage_ = Stage::kReading;
    is_head_ = false;
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxBodyBytes);
    stream_.expires_after(kPatience);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](const error_code& error, size_t) { self->OnRead(error); });
  }

  void Publish(const std::shared_ptr<const std::string>& event) {
    next_ = event;
    if (!is_writing_) WriteNext();
  }

  const std::string& channel() const { return channel_; }
  const Door& door() const { return door_; }
  const std::string& address() const { return address_; }
  bool may_go() const { return stage_ != Stage::kAnswerOwed; }
  std::pair<Stage, uint64_t> turn() const { return {stage_, number_}; }

  void End() {
    Close();
    server_.connections_.erase(shared_from_this());
  }

  void Close() {
    if (std::exchange(is_closed_, true)) return;
    --door_.connections;
    stream_.close();
  }

 private:
  void OnRead(const error_code& error) {
    if (is_closed_) return;
    if (error == http::error::header_limit || error == http::error::body_limit) {
      return Reply({.status = 413, .body = "the request is too large\n"}, true);
    }
    if (error && error.category() == make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return Reply({.status = 400, .body = "not an HTTP request\n"}, true);
    }
    if (error) return End();
    const auto& message = parser_->get();
    HttpRequest request;
    request.is_local = door_.is_local();
    request.door = door_.name();
    request.accept = std::string(message[http::field::accept]);
    is_head_ = message.method() == http::verb::head;
    request.method = is_head_ ? "GET" : std::string(message.method_string());
    const bool keeps = message.keep_alive();
    if (const std::optional<HttpReply> refusal = Refusal(request.method)) {
      return Reply(*refusal, true);
    }
    if (!ParseTarget(std::string(message.target()), request)) {
      return Reply({.status = 400, .body = "no such path\n"}, true);
    }
    stage_ = Stage::kAnswerOwed;
    stream_.expires_never();  // until the answer
    server_.handler_(request, [self = shared_from_this(), keeps](HttpReply reply) {
      if (!self->is_closed_) self->Reply(std::move(reply), !keeps);
    });
  }

  // What a stranger's request is not given.
  std::optional<HttpReply> Refusal(const std::string& method) const {
    if (door_.is_local()) return std::nullopt;
    const auto& message = parser_->get();
    if (method != "GET") {
      return HttpReply{.status = 405, .body = "this port is for reading alone\n"};
    }
    const std::string host(message[http::field::host]);
    // Metrics are figures alone, and scraped by whatever name a cluster gives this machine.
    const bool is_metrics = message.target() == "/metrics";
    if (!is_metrics && !IsHostAllowed(host, door_.names())) {
      return HttpReply{.status = 421,
                       .body = "this name is not known here; ask by the machine's address\n"};
    }
    const auto origin = message.find(http::field::origin);
    if (origin != message.end() && origin->value() != "http://" + host) {
      return HttpReply{.status = 403, .body = "pages of other origins may not read this\n"};
    }
    return std::nullopt;
  }

  void Reply(HttpReply reply, bool is_last) {
    auto message = std::make_shared<http::response<http::string_body>>();
    message->version(11);
    message->result(static_cast<unsigned>(reply.status));
    message->set(http::field::content_type, reply.type);
    message->set(http::field::cache_control, "no-store");
    message->set("X-Content-Type-Options", "nosniff");
    message->set("Content-Security-Policy", kSecurity);
    message->set("Referrer-Policy", "no-referrer");
    if (reply.status == 405) message->set(http::field::allow, "GET, HEAD");
    const bool is_stream = !reply.channel.empty() && !is_head_;
    stage_ = is_stream ? Stage::kStreaming : Stage::kReplying;
    if (is_stream) channel_ = reply.channel;
    is_writing_ = is_stream;  // what is published meanwhile follows the body
    message->body() = std::move(reply.body);
    if (is_stream) {
      message->set(http::field::connection, "close");
    } else {
      message->keep_alive(!is_last);
      message->prepare_payload();
      if (is_head_) message->body().clear();
    }
    stream_.expires_after(kPatience);
    http::async_write(
        stream_, *message,
        [self = shared_from_this(), message, is_last, is_stream](const error_code& error, size_t) {
          if (self->is_closed_) return;
          if (error && error != http::error::end_of_stream) return self->End();
          if (is_stream) return self->BeginStream();
          if (is_last) return self->End();
          self->Read();
        });
  }

  void BeginStream() {
    is_writing_ = false;
    stream_.expires_never();
    AwaitEnd();
    if (next_ != nullptr) WriteNext();
  }

  // Notices that the reader has gone; what it says is of no interest.
  void AwaitEnd() {
    stream_.socket().async_wait(
        asio::socket_base::wait_read, [self = shared_from_this()](const error_code& error) {
          if (self->is_closed_) return;
          if (error) return self->End();
          char ignored[256];
          const ssize_t got =
              recv(self->stream_.socket().native_handle(), ignored, sizeof ignored, MSG_DONTWAIT);
          const bool is_none = got < 0 && (errno == EAGAIN || errno == EINTR);
          if (got <= 0 && !is_none) return self->End();
          self->AwaitEnd();
        });
  }

  void WriteNext() {
    is_writing_ = true;
    const std::shared_ptr<const std::string> event = std::exchange(next_, nullptr);
    stream_.expires_after(kPatience);
    asio::async_write(stream_, asio::buffer(*event),
                      [self = shared_from_this(), event](const error_code& error, size_t) {
                        self->is_writing_ = false;
                        if (self->is_closed_) return;
                        if (error) return self->End();
                        self->stream_.expires_never();
                        if (self->next_ != nullptr) self->WriteNext();
                      });
  }

  HttpServer& server_;
  Door& door_;
  const uint64_t number_;      // grows with the time of its coming
  const std::string address_;  // of the peer; empty: over the control socket
  Stream stream_;
  boost::beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<http::request_parser<http::string_body>> parser_;
  Stage stage_ = Stage::kReading;
  bool is_head_ = false;
  bool is_closed_ = false;
  std::string channel_;  // "": no stream
  bool is_writing_ = false;
  std::shared_ptr<const std::string> next_;
};

void HttpServer::Door::AcceptSome() {
  for (int i = 0; i < kMaxAccepts; ++i) {
    UniqueFd fd(
        accept4(listening_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Wait();
      rest_.expires_after(kAcceptRest);
      rest_.async_wait([weak = weak_from_this()](const error_code& error) {
        const std::shared_ptr<Door> door = weak.lock();
        if (!error && door != nullptr) door->AcceptSome();
      });
      return;
    }
    if (is_local_ && !IsPeerAllowed(fd.get())) continue;
    const std::string address = is_local_ ? "" : IpText(rendezvous::PeerAddress(fd.get()));
    if (connections >= kMaxConnections && !server_.MakeRoom(*this, address)) continue;
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) continue;
    Protocol::socket socket(server_.io_);
    error_code error;
    socket.assign(Protocol(name.ss_family, 0), fd.get(), error);
    if (error) continue;
    static_cast<void>(fd.Release());
    const auto connection =
        std::make_shared<Connection>(server_, *this, std::move(socket), address);
    server_.connections_.insert(connection);
    connection->Read();
  }
  Wait();
}

bool HttpServer::MakeRoom(const Door& door, const std::string& address) {
  if (door.is_local()) return false;
  std::map<std::string, size_t> counts = {{address, 1}};
  for (const std::shared_ptr<Connection>& connection : connections_) {
    if (&connection->door() == &door) ++counts[connection->address()];
  }
  std::shared_ptr<Connection> found;
  const auto order = [&counts](const Connection& one) {
    const auto [stage, number] = one.turn();
    return std::tuple(-static_cast<ptrdiff_t>(counts[one.address()]), stage, number);
  };
  for (const std::shared_ptr<Connection>& connection : connections_) {
    if (&connection->door() != &door || !connection->may_go()) continue;
    if (found == nullptr || order(*connection) < order(*found)) found = connection;
  }
  if (found == nullptr) return false;
  found->End();
  return true;
}

HttpServer::HttpServer(asio::io_context& io, Handler handler)
    : io_(io), handler_(std::move(handler)) {}

HttpServer::~HttpServer() { Close(); }

void HttpServer::Listen(UniqueFd listening, bool is_local, std::set<std::string> host_names,
                        std::string door) {
  doors_.push_back(std::make_shared<Door>(*this, std::move(listening), is_local,
                                          std::move(host_names), std::move(door)));
  doors_.back()->Wait();
}

void HttpServer::Publish(const std::string& channel,
                         const std::shared_ptr<const std::string>& event) {
  // One whose writing fails at once takes itself out of the list.
  const auto connections = connections_;
  for (const std::shared_ptr<Connection>& connection : connections) {
    if (connection->channel() == channel) connection->Publish(event);
  }
}

size_t HttpServer::stream_count(const std::string& channel) const {
  size_t count = 0;
  for (const std::shared_ptr<Connection>& connection : connections_) {
    if (connection->channel() == channel) ++count;
  }
  return count;
}

void HttpServer::Close() {
  for (const std::shared_ptr<Connection>& connection : connections_) connection->Close();
  connections_.clear();
  doors_.clear();
}

}  // namespace ddprun::launcher
