#include "launcher/dump/worker_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kGloo[] = "fr_trace_json";
constexpr char kNccl[] = "dump_nccl_trace_json";

std::string Http(const std::string& status, const std::string& body, size_t more = 0) {
  return absl::StrCat("HTTP/1.1 ", status,
                      "\r\nConnection: close\r\nContent-Length: ", body.size() + more, "\r\n\r\n",
                      body);
}

// Answers as PyTorch's worker server does, one connection after the other; what it has no answer
// for it leaves unanswered.
class Server {
 public:
  explicit Server(std::map<std::string, std::string> answers) : answers_(std::move(answers)) {
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    listening_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    REQUIRE(bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listening_.get(), 8) == 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Server() {
    is_over_ = true;
    thread_.join();
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/s"; }

 private:
  void Serve() {
    std::vector<UniqueFd> unanswered;
    while (!is_over_) {
      pollfd polled{listening_.get(), POLLIN, 0};
      if (poll(&polled, 1, 10) != 1) continue;
      UniqueFd fd(accept(listening_.get(), nullptr, nullptr));
      std::string request;
      char buffer[1000];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = recv(fd.get(), buffer, sizeof(buffer), 0);
        if (count <= 0) break;
        request.append(buffer, static_cast<size_t>(count));
      }
      const size_t at = request.find("/handler/");
      if (at == std::string::npos) continue;  // it does not like who serves here
      const size_t begin = at + 9;
      const auto answer = answers_.find(request.substr(begin, request.find(' ', begin) - begin));
      if (answer == answers_.end()) {
        unanswered.push_back(std::move(fd));
      } else {
        send(fd.get(), answer->second.data(), answer->second.size(), MSG_NOSIGNAL);
      }
    }
  }

  const std::map<std::string, std::string> answers_;
  std::string folder_ = "/tmp/server.XXXXXX";  // a socket's path has 107 bytes at most
  UniqueFd listening_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

absl::StatusOr<FlightRecords> Ask(const Server& server, Duration patience = seconds(60)) {
  return AskFlightRecords(server.path(), {getpid()}, SteadyNow() + patience);
}

const std::string kRecord = R"({"entries":[{}]})";

TEST_CASE("worker server: PyTorch without NCCL knows one recorder, with it two") {
  const Server cpu({{kGloo, Http("200 OK", kRecord)}, {kNccl, Http("404 Not Found", "none")}});
  auto records = Ask(cpu);
  REQUIRE_MESSAGE(records.ok(), records.status());
  CHECK(records->gloo == kRecord);
  CHECK(records->nccl == "");
  // Of what nothing has used there are no entries.
  const Server cuda({{kGloo, Http("200 OK", "{}")}, {kNccl, Http("200 OK", kRecord)}});
  records = Ask(cuda);
  REQUIRE_MESSAGE(records.ok(), records.status());
  CHECK(records->gloo == "");
  CHECK(records->nccl == kRecord);
}

TEST_CASE("worker server: what one recorder tells is kept where the other does not answer") {
  const Server server({{kGloo, Http("200 OK", kRecord)}});
  const auto records = Ask(server, seconds(5));  // the one has time to answer
  REQUIRE_MESSAGE(records.ok(), records.status());
  CHECK(records->gloo == kRecord);
}

TEST_CASE("worker server: no answer, half of one and a failure are errors") {
  const std::string failed = Http("500 Internal Server Error", "std::exception");
  for (const std::string& answer : {std::string(), Http("200 OK", kRecord, 5), failed}) {
    std::map<std::string, std::string> answers;
    if (!answer.empty()) answers = {{kGloo, answer}, {kNccl, answer}};
    const Server server(answers);
    // lower bound: it never answers
    CHECK(!Ask(server, answer.empty() ? Duration(milliseconds(50)) : seconds(60)).ok());
  }
  const Server server({{"dump_traceback", failed}});
  const auto stacks = AskStacks(server.path(), {getpid()}, SteadyNow() + seconds(60));
  CHECK(stacks.status().message() == Contains("answers dump_traceback with HTTP/1.1 500"));
}

TEST_CASE("worker server: a relative path is the process's, and another process is not asked") {
  const Server server({{kGloo, Http("200 OK", kRecord)}, {kNccl, Http("404 Not Found", "")}});
  const std::string relative = std::filesystem::relative(server.path()).string();
  CHECK(AskFlightRecords(relative, {getpid()}, SteadyNow() + seconds(60)).ok());
  CHECK(!AskFlightRecords(server.path(), {getppid()}, SteadyNow() + seconds(60)).ok());
}

}  // namespace
}  // namespace ddprun::launcher
