#include "launcher/progress/trainer_post.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstring>
#include <exception>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::launcher {
namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace {

using asio::ip::tcp;
using boost::system::error_code;
using Request = http::request<http::string_body>;

// The server's limit for a request; a token, a certificate and an answer are smaller.
constexpr size_t kMaxBytes = 65536;
// Of an answer that is an error, for the user.
constexpr size_t kQuotedBytes = 200;

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  // Not blocking: a FIFO would wait for its other end.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string bytes(kMaxBytes + 1, '\0');
  size_t size = 0;
  ssize_t got = file.is_open() ? 1 : -1;
  while (got > 0 && size < bytes.size()) {
    got = read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got > 0) size += static_cast<size_t>(got);
    if (got < 0 && errno == EINTR) got = 1;
  }
  if (got < 0) return absl::UnknownError(std::strerror(errno));
  if (size > kMaxBytes) return absl::UnknownError("it is larger than 64 KiB");
  bytes.resize(size);
  return bytes;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadSmallFile(path);
  const std::string token = bytes.ok() ? std::string(absl::StripAsciiWhitespace(*bytes)) : "";
  const bool is_token = !token.empty() && std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (is_token) return token;
  return absl::FailedPreconditionError(absl::StrCat(
      "read the token ", EscapeControl(path), " (", kTrainerTokenVar,
      "): ", bytes.ok() ? "it holds no token" : std::string(bytes.status().message())));
}

// One connection and its time.
class Exchange {
 public:
  Exchange(const TrainerEndpoint& endpoint, Duration timeout)
      : endpoint_(endpoint), by_(std::chrono::steady_clock::now() + timeout) {}

  absl::Status Connect() {
    const rendezvous::Resolution found = rendezvous::ResolveName(endpoint_.host, endpoint_.port);
    if (found.outcome != rendezvous::Resolution::Outcome::kFound) {
      return absl::NotFoundError(absl::StrCat("find ", endpoint_.host, ": ", found.error));
    }
    absl::Status status;
    for (const rendezvous::SocketAddress& address : found.addresses) {
      status = ConnectTo(address);
      if (status.ok()) break;
    }
    return status;
  }

  absl::Status Post(const Request& request) { return PostOver(socket_, request); }

  absl::Status PostSecurely(const Request& request) {
    const absl::StatusOr<std::string> authority = ReadSmallFile(endpoint_.ca_file);
    asio::ssl::context context(asio::ssl::context::tls_client);
    error_code error;
    if (authority.ok()) context.add_certificate_authority(asio::buffer(*authority), error);
    if (!authority.ok() || error) {
      return absl::InvalidArgumentError(absl::StrCat(
          "read the certificate ", EscapeControl(endpoint_.ca_file), " (", kTrainerCaVar,
          "): ", authority.ok() ? error.message() : std::string(authority.status().message())));
    }
    SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
    asio::ssl::stream<tcp::socket&> stream(socket_, context);
    stream.set_verify_mode(asio::ssl::verify_peer);
    SSL* const ssl = stream.native_handle();
    // An IP address is compared with the addresses in the certificate, and is no server name.
    const bool is_ip = rendezvous::ParseIp(endpoint_.host, 0).has_value();
    if (!is_ip) SSL_set_tlsext_host_name(ssl, endpoint_.host.c_str());
    if (SSL_set1_host(ssl, endpoint_.host.c_str()) != 1) {
      return absl::InternalError("OpenSSL takes no name to verify");
    }
    error = Await([&](auto done) {
      stream.async_handshake(asio::ssl::stream_base::client, std::move(done));
    });
    const long verdict = SSL_get_verify_result(ssl);
    if (verdict != X509_V_OK) {
      return absl::UnauthenticatedError(
          absl::StrCat("verify the server by the certificate ", EscapeControl(endpoint_.ca_file),
                       " (", kTrainerCaVar, "): ", X509_verify_cert_error_string(verdict)));
    }
    if (error) return Failure("greet it in TLS", error, absl::StatusCode::kUnauthenticated);
    return PostOver(stream, request);
  }

 private:
  // Starts an operation on the socket and waits for its end; at `by_` it ends it by force.
  template <typename Start>
  error_code Await(Start start) {
    error_code result;
    bool is_done = false;
    start([&](error_code error, auto&&...) {
      result = error;
      is_done = true;
    });
    io_.restart();
    io_.run_until(by_);
    if (is_done) return result;
    socket_.close(result);
    io_.restart();
    io_.run();  // what refers to this call's frame
    return asio::error::timed_out;
  }

  static absl::Status Failure(const char* what, const error_code& error, absl::StatusCode code) {
    const bool is_late = error == asio::error::timed_out;
    return absl::Status(is_late ? absl::StatusCode::kDeadlineExceeded : code,
                        absl::StrCat(what, ": ", is_late ? "no answer in time" : error.message()));
  }

  absl::Status ConnectTo(const rendezvous::SocketAddress& address) {
    const int family = address.get()->sa_family;
    const std::string what = "connect to " + rendezvous::AddressText(address);
    // Asio's own sockets are not close-on-exec at birth.
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.is_open()) {
      return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
    }
    tcp::endpoint to;
    std::memcpy(to.data(), address.get(), std::min<size_t>(address.size, to.capacity()));
    to.resize(address.size);
    error_code error;
    socket_ = tcp::socket(io_);
    socket_.assign(family == AF_INET6 ? tcp::v6() : tcp::v4(), fd.get(), error);
    if (!error) {
      static_cast<void>(fd.Release());
      error = Await([&](auto done) { socket_.async_connect(to, std::move(done)); });
    }
    if (!error) return absl::OkStatus();
    return Failure(what.c_str(), error, absl::StatusCode::kUnavailable);
  }

  template <typename Stream>
  absl::Status PostOver(Stream& stream, const Request& request) {
    error_code error =
        Await([&](auto done) { http::async_write(stream, request, std::move(done)); });
    if (error) return Failure("send the request", error, absl::StatusCode::kUnavailable);
    boost::beast::flat_buffer buffer(kMaxBytes);
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxBytes);
    error = Await([&](auto done) { http::async_read(stream, buffer, parser, std::move(done)); });
    // Servers differ in how they end a body; what they think stands before it.
    if (!parser.is_header_done()) {
      return Failure("read the answer", error, absl::StatusCode::kDataLoss);
    }
    const auto& answer = parser.get();
    if (http::to_status_class(answer.result()) == http::status_class::successful) {
      return absl::OkStatus();
    }
    const int number = answer.result_int();
    const std::string said = EscapeControl(answer.body().substr(0, kQuotedBytes));
    const std::string text = absl::StrCat("answer ", number, said.empty() ? "" : " ", said);
    if (number != 401 && number != 403) return absl::InternalError(text);
    return absl::PermissionDeniedError(
        absl::StrCat(text, " to the token ", EscapeControl(endpoint_.token_file)));
  }

  const TrainerEndpoint& endpoint_;
  const std::chrono::steady_clock::time_point by_;
  asio::io_context io_{1};
  tcp::socket socket_{io_};
};

absl::Status PostOnce(const TrainerEndpoint& endpoint, const std::string& body, Duration timeout) {
  const absl::StatusOr<std::string> token = ReadToken(endpoint.token_file);
  if (!token.ok()) return token.status();
  Request request(http::verb::post, endpoint.target, 11);
  request.set(http::field::host, endpoint.authority);
  request.set(http::field::user_agent, "ddprun");
  request.set(http::field::connection, "close");
  request.set(http::field::content_type, "application/json");
  request.set(http::field::authorization, "Bearer " + *token);
  request.body() = body;
  request.prepare_payload();
  Exchange exchange(endpoint, timeout);
  const absl::Status status = exchange.Connect();
  if (!status.ok()) return status;
  return endpoint.is_tls ? exchange.PostSecurely(request) : exchange.Post(request);
}

}  // namespace

absl::Status PostToTrainer(const TrainerEndpoint& endpoint, const std::string& body,
                           Duration timeout) {
  try {
    return PostOnce(endpoint, body, timeout);
  } catch (const std::exception& error) {  // Asio's and Beast's
    return absl::UnknownError(error.what());
  }
}

}  // namespace ddprun::launcher
