#include "launcher/dump/worker_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/dump/tool_run.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// 2,000 collectives, as the recorder keeps by default, are 1.2 MB.
constexpr size_t kMaxFlights = 8 << 20;

absl::Status Await(int fd, short events, const std::string& path, TimePoint deadline) {
  for (;;) {
    pollfd polled{fd, events, 0};
    const int ready = poll(&polled, 1, PollTimeout(deadline));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return FileError("poll", path);
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("\"", path, "\" did not answer in time"));
    }
  }
}

absl::StatusOr<UniqueFd> Connect(const std::string& named, const std::vector<int>& pids) {
  const bool is_relative = !named.starts_with('/') && !pids.empty();
  const std::string path = is_relative ? absl::StrCat("/proc/", pids[0], "/cwd/", named) : named;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is too long for a socket"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return FileError("socket", path);
  // At once, or EAGAIN where too many others wait already.
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FileError("connect", path);
  }
  // All workers of a node may have been told the same path: the last to bind it listens there.
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return FileError("getsockopt(SO_PEERCRED)", path);
  }
  if (std::find(pids.begin(), pids.end(), peer.pid) == pids.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", path, "\" is served by process ", peer.pid));
  }
  return fd;
}

// `handler` is PyTorch's name. NotFound: the server does not know it.
absl::StatusOr<std::string> Ask(const std::string& path, const std::vector<int>& pids,
                                const char* handler, size_t limit, TimePoint deadline) {
  const std::string request = absl::StrCat(
      "POST /handler/", handler, " HTTP/1.0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  absl::StatusOr<UniqueFd> fd = Connect(path, pids);
  if (!fd.ok()) return fd.status();
  // Far less than the socket takes.
  if (send(fd->get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return FileError("send", path);
  }
  std::string answer;
  char buffer[16384];
  while (!IsWholeAnswer(answer) && answer.size() < limit) {
    if (const absl::Status ready = Await(fd->get(), POLLIN, path, deadline); !ready.ok()) {
      return ready;
    }
    const ssize_t count = recv(fd->get(), buffer, sizeof(buffer), 0);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return FileError("recv", path);
    if (count == 0) break;
    answer.append(buffer, static_cast<size_t>(count));
  }
  return ServerBody(answer, path, handler);
}

}  // namespace

bool IsWholeAnswer(std::string_view answer) {
  const size_t head = answer.find("\r\n\r\n");
  if (head == std::string_view::npos) return false;
  constexpr std::string_view kLength = "\r\nContent-Length: ";
  const size_t at = answer.substr(0, head).find(kLength);
  if (at == std::string_view::npos) return false;
  const std::string rest(answer.substr(at + kLength.size(), head - at - kLength.size()));
  size_t length = 0;
  return absl::SimpleAtoi(rest.substr(0, rest.find('\r')), &length) &&
         answer.size() - head - 4 >= length;
}

absl::StatusOr<std::string> ServerBody(const std::string& answer, const std::string& path,
                                       const char* handler) {
  const size_t head = answer.find("\r\n\r\n");
  const std::string status = answer.substr(0, answer.find('\r'));
  if (head == std::string::npos) {
    return absl::UnavailableError(absl::StrCat("\"", path, "\" does not answer ", handler));
  }
  if (absl::StrContains(status, " 404")) {
    return absl::NotFoundError(absl::StrCat("\"", path, "\" does not know ", handler));
  }
  if (!absl::StrContains(status, " 200")) {
    return absl::UnavailableError(
        absl::StrCat("\"", path, "\" answers ", handler, " with ", status.substr(0, 80)));
  }
  if (!IsWholeAnswer(answer)) {
    return absl::UnavailableError(absl::StrCat("\"", path, "\" answers ", handler, " in part"));
  }
  return answer.substr(head + 4);
}

absl::StatusOr<std::string> AskStacks(const std::string& path, const std::vector<int>& pids,
                                      TimePoint deadline) {
  return Ask(path, pids, "dump_traceback", kMaxToolOutput, deadline);
}

absl::StatusOr<FlightRecords> AskFlightRecords(const std::string& path,
                                               const std::vector<int>& pids, TimePoint deadline) {
  FlightRecords records;
  absl::Status trouble;
  for (const auto& [handler, record] : {std::pair("fr_trace_json", &records.gloo),
                                        std::pair("dump_nccl_trace_json", &records.nccl)}) {
    absl::StatusOr<std::string> json = Ask(path, pids, handler, kMaxFlights, deadline);
    if (!json.ok() && !absl::IsNotFound(json.status())) trouble.Update(json.status());
    if (json.ok() && absl::StrContains(*json, "\"entries\"")) *record = *std::move(json);
  }
  // What one has recorded is worth having without the other.
  const bool is_empty = records.gloo.empty() && records.nccl.empty();
  return is_empty && !trouble.ok() ? absl::StatusOr<FlightRecords>(trouble) : records;
}

}  // namespace ddprun::launcher
