#include "launcher/control/control_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/control/control_socket.h"
#include "launcher/status/process_facts.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/read_system_facts.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace http = boost::beast::http;
namespace {

// Of an answer about a job of tens of thousands of ranks.
constexpr uint64_t kMaxAnswerBytes = 64 * 1024 * 1024;

// `fd`: connected to it.
absl::Status Late(const std::string& path, int fd) {
  const std::string late =
      absl::StrCat("no answer from the ddprun behind ", EscapeControl(path), " in time");
  const int pid = ListenerOf(fd);
  if (pid == 0) return absl::DeadlineExceededError(late);
  const std::string status = ReadSmallFile(absl::StrCat("/proc/", pid, "/status"));
  const bool is_stopped = ParseProcessStatus(status).state == 'T';
  return absl::DeadlineExceededError(absl::StrCat(
      late, "; it is process ", pid,
      is_stopped ? absl::StrCat(", which is stopped (kill -CONT ", pid, " lets it go on)") : ""));
}

bool AwaitReady(int fd, short events, TimePoint until) {
  pollfd polled{fd, events, 0};
  for (;;) {
    const int ready = poll(&polled, 1, PollTimeout(until));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

absl::Status SendAll(int fd, std::string_view bytes, TimePoint until, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return absl::ErrnoToStatus(errno, "write to " + EscapeControl(path));
    } else if (!AwaitReady(fd, POLLOUT, until)) {
      return Late(path, fd);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ControlReply> AskControl(const std::string& socket_path, const std::string& method,
                                        const std::string& target, Duration timeout) {
  const TimePoint until = SteadyNow() + timeout;
  const absl::StatusOr<UniqueFd> fd = ConnectToControl(socket_path, timeout);
  if (!fd.ok()) return fd.status();
  const std::string request =
      absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: ddprun\r\nConnection: close\r\n",
                   method == "POST" ? "Content-Length: 0\r\n" : "", "\r\n");
  if (absl::Status sent = SendAll(fd->get(), request, until, socket_path); !sent.ok()) return sent;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswerBytes);
  parser.eager(true);
  boost::beast::flat_buffer unread;
  std::array<char, 65536> bytes;
  while (!parser.is_done()) {
    if (!AwaitReady(fd->get(), POLLIN, until)) return Late(socket_path, fd->get());
    const ssize_t got = recv(fd->get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    boost::system::error_code error;
    if (got <= 0 && !parser.got_some()) {
      return absl::UnavailableError(
          absl::StrCat("the ddprun behind ", EscapeControl(socket_path),
                       " has not taken the question: it has ended, or too many ask at once"));
    }
    if (got <= 0) {
      parser.put_eof(error);
      if (error || !parser.is_done()) {
        return absl::UnavailableError(absl::StrCat("the ddprun behind ", EscapeControl(socket_path),
                                                   " has ended in the middle of its answer"));
      }
      break;
    }
    unread.commit(
        boost::asio::buffer_copy(unread.prepare(static_cast<size_t>(got)),
                                 boost::asio::buffer(bytes.data(), static_cast<size_t>(got))));
    while (unread.size() > 0 && !parser.is_done()) {
      const size_t used = parser.put(unread.data(), error);
      unread.consume(used);
      if (error == http::error::need_more) break;
      if (error) {
        return absl::DataLossError(absl::StrCat("what answers behind ", EscapeControl(socket_path),
                                                " is no ddprun: ", error.message()));
      }
    }
  }
  return ControlReply{static_cast<int>(parser.get().result_int()), parser.get().body()};
}

std::string QueryValue(const std::string& text) {
  std::string value;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.') {
      value += c;
    } else {
      absl::StrAppend(&value, "%", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return value;
}

}  // namespace ddprun::launcher
