// Strangers at the control socket, and workers that misuse their page: the job does not notice.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <random>

#include <doctest/doctest.h>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/e2e/asking.h"
#include "tests/support/contains.h"
#include "tests/support/descriptors.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

UniqueFd Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  DDP_CHECK(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  DDP_CHECK(connect(fd.get(), to, sizeof address) == 0);
  return fd;
}

// As much as the agent takes of it.
void Send(const UniqueFd& fd, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    pollfd polled{fd.get(), POLLOUT, 0};
    if (poll(&polled, 1, 1000) <= 0 || (polled.revents & POLLERR) != 0) return;
    const ssize_t count =
        send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

// All that it answers until it closes the connection, or says nothing for some time.
std::string AnswerOf(const UniqueFd& fd) {
  std::string answer;
  char bytes[4096];
  for (;;) {
    pollfd polled{fd.get(), POLLIN, 0};
    if (poll(&polled, 1, 20'000) <= 0) return answer + "(no end)";
    const ssize_t count = recv(fd.get(), bytes, sizeof bytes, 0);
    if (count <= 0) return answer;
    answer.append(bytes, static_cast<size_t>(count));
  }
}

// Whether the agent closes the connection, of which nothing is read, within some time.
bool IsHungUp(const UniqueFd& fd) {
  pollfd polled{fd.get(), POLLRDHUP, 0};
  return poll(&polled, 1, 20'000) == 1 && (polled.revents & (POLLRDHUP | POLLHUP)) != 0;
}

std::string Exchange(const std::string& socket, const std::string& request) {
  const UniqueFd fd = Connect(socket);
  Send(fd, request);
  return AnswerOf(fd);
}

std::string RequestOf(const std::string& method, const std::string& target) {
  return method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

std::string Garbage(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

size_t ResidentKiB(int pid) {
  const std::string status = ReadFile("/proc/" + std::to_string(pid) + "/status");
  const size_t at = status.find("VmRSS:");
  return at == std::string::npos ? 0 : std::stoul(status.substr(at + 6));
}

// A job that trains, and must do so undisturbed until the end of the test.
class Victim {
 public:
  explicit Victim(const Strings& steps = {})
      : ddprun_(
            RunReporting(job_, folder_, {"--nproc-per-node=2", "--rdzv-id=digits"}, With(steps))) {
    StatusUntil(job_, folder_, [](const json& now) { return HaveStepped(now, 2); });
    before_ = CountDescriptors(pid());
    before_kib_ = ResidentKiB(pid());
  }
  ~Victim() {
    const Told told =
        AskUntil(job_, folder_, {"status"}, [](const Told& now) { return now.code == 0; });
    CHECK_MESSAGE(told.code == 0, told.Describe());
    CHECK_MESSAGE(Eventually([&] { return CountDescriptors(pid()) <= before_; }),
                  "descriptors: ", before_, " before, ", CountDescriptors(pid()), " now");
    CHECK_MESSAGE(ResidentKiB(pid()) < before_kib_ + 64 * 1024, "memory grew without bound");
    job_.Touch("go");
    CHECK_MESSAGE(ddprun_->Wait() == 0, ddprun_->Describe());
    CHECK(ddprun_->err() != Contains("error"));
    CHECK(ddprun_->err() != Contains("warning"));
  }
  std::string socket() const { return folder_.Socket(); }
  int pid() const { return ddprun_->pid(); }
  const ControlFolder& folder() const { return folder_; }
  Job& job() { return job_; }

 private:
  Strings With(Strings steps) const {
    steps.push_back("steps:" + job_.File("go"));
    return steps;
  }

  Job job_;
  ControlFolder folder_;
  Node ddprun_;
  size_t before_ = 0, before_kib_ = 0;
};

TEST_CASE("control: what is no request is answered by an error or nothing, and is dropped") {
  Victim victim;
  const Strings sayings = {
      Garbage(100'000, 1),
      Garbage(7, 2),
      std::string(1 << 20, '\0'),
      "\r\n\r\n\r\n",
      "GET /status.json HTTP/1.1\r\nX: " + std::string(10 << 20, 'x') + "\r\n\r\n",
      "GET /" + std::string(10 << 20, 'x') + " HTTP/1.1\r\n\r\n",
      "POST /stop HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + Garbage(99, 3),
      "POST /stop HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST /stop HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string("\x16\x03\x01\x02", 4) + Garbage(512, 4),
  };
  for (size_t i = 0; i < sayings.size(); ++i) {
    const std::string answer = Exchange(victim.socket(), sayings[i]);
    const bool is_refused = answer.empty() || answer.starts_with("HTTP/1.1 4");
    CHECK_MESSAGE(is_refused, "saying ", i, ": ", answer.substr(0, 200));
    CHECK_MESSAGE(!answer.ends_with("(no end)"), "saying ", i, ": ", answer.substr(0, 200));
  }
}

TEST_CASE("control: other methods, paths and encodings change nothing") {
  Victim victim;
  struct Row {
    const char *method, *target, *code;
  };
  const Row rows[] = {{"GET", "/stop", "404"},
                      {"DELETE", "/stop", "404"},
                      {"PUT", "/stop?after_step=1", "404"},
                      {"POST", "/status.json", "404"},
                      {"POST", "/nothing", "404"},
                      {"GET", "/../../etc/passwd", "404"},
                      {"GET", "/%2e%2e/%2e%2e/etc/passwd", "404"},
                      {"GET", "/status.json%00", "404"},
                      {"GET", "/%", "400"},
                      {"GET", "/%4", "400"},
                      {"GET", "/%zz", "400"},
                      {"GET", "stop", "400"},
                      {"GET", "http://x/status.json", "400"},
                      {"GET", "/logs", "400"},
                      {"GET", "/logs?rank=%", "400"},
                      {"GET", "/logs?rank=-1", "400"},
                      {"GET", "/logs?rank=99999999999999999999", "400"},
                      {"GET", "/logs?rank=0&offset=-5", "400"},
                      {"GET", "/logs?rank=0;rank=1", "400"},
                      {"GET", "/logs?&&&=&=&rank=0", "200"},
                      {"GET", "/logs?rank=0&offset=9223372036854775807", "200"},
                      {"GET", "/status.json?%ff=%00", "200"}};
  for (const Row& row : rows) {
    const std::string answer = Exchange(victim.socket(), RequestOf(row.method, row.target));
    CHECK_MESSAGE(answer.starts_with(std::string("HTTP/1.1 ") + row.code), row.method, " ",
                  row.target, ": ", answer.substr(0, 300));
  }
  std::string many = "/status.json?a=1";
  for (int i = 0; i < 100; ++i) many += "&k" + std::to_string(i) + "=1";
  CHECK(Exchange(victim.socket(), RequestOf("GET", many)).starts_with("HTTP/1.1 400"));
}

TEST_CASE("control: 200 silent connections and half requests are dropped after a while") {
  Victim victim;
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(Connect(victim.socket()));
    if (i % 2 == 1) Send(silent.back(), "GET /status.json HTTP/1.1\r\nHo");
  }
  // Its descriptors have a bound.
  CHECK(CountDescriptors(victim.pid()) < 120);
  for (const UniqueFd& fd : silent) CHECK(AnswerOf(fd) != Contains("(no end)"));
}

TEST_CASE("control: status answers again as soon as a crowd has gone") {
  Victim victim;
  {
    std::vector<UniqueFd> crowd;
    for (int i = 0; i < 200; ++i) crowd.push_back(Connect(victim.socket()));
    const Told told = Ask(victim.job(), victim.folder(), {"status"});
    CHECK_MESSAGE((told.code == 2 || told.code == 0), told.Describe());
    if (told.code == 2) {
      CHECK(told.err == Contains("no job of yours answers on this machine (DDPRUN_CONTROL_DIR is " +
                                 victim.folder().path() + "); "));
    }
  }
  AskUntil(victim.job(), victim.folder(), {"status"},
           [](const Told& told) { return told.code == 0; });
}

TEST_CASE("control: who asks and never reads is dropped, and holds nothing up") {
  Victim victim;
  std::vector<UniqueFd> deaf;
  std::string requests;
  for (int i = 0; i < 2000; ++i) requests += "GET /status.json HTTP/1.1\r\nHost: x\r\n\r\n";
  for (int i = 0; i < 8; ++i) {
    deaf.push_back(Connect(victim.socket()));
    Send(deaf.back(), requests);
  }
  const Told told = Ask(victim.job(), victim.folder(), {"status"});
  CHECK_MESSAGE(told.code == 0, told.Describe());
  for (const UniqueFd& fd : deaf) REQUIRE(IsHungUp(fd));
}

TEST_CASE("control: a worker that writes random words over its page harms nobody") {
  Job job;
  const ControlFolder folders[2];
  std::vector<Node> nodes;
  for (const ControlFolder& folder : folders) {
    nodes.push_back(RunReporting(job, folder, job.NodeOptions(2, "2", {"--hang-timeout=2"}),
                                 {"step:1", "scribble:" + job.File("go")}));
  }
  for (const ControlFolder& folder : folders) {
    StatusUntil(job, folder, [](const json& now) { return RanksOf(now).size() == 4; });
  }
  for (int i = 0; i < 25; ++i) {
    for (const ControlFolder& folder : folders) {
      const Told told = Ask(job, folder, {"status", "--json"});
      REQUIRE_MESSAGE((told.code == 0 || told.code == 1), told.err);
      CHECK(told.json().is_object());
      CHECK(told.out.size() < 1 << 20);
      const Told text = Ask(job, folder, {"status"});
      REQUIRE_MESSAGE((text.code == 0 || text.code == 1), text.err);
      CHECK_MESSAGE(text.out.size() < 16 * 1024, text.out);
      CHECK(text.out != Contains("\x1b"));
    }
  }
  const Told outside = Ask(job, folders[0], {"status", "--coordinator=" + job.endpoint()});
  CHECK_MESSAGE((outside.code == 0 || outside.code == 1), outside.err);
  job.Touch("go");
  for (const Node& node : nodes) {
    CHECK_MESSAGE(node->Wait() == 0, node->Describe());
    CHECK_MESSAGE(node->err().size() < 64 * 1024, "bytes on stderr: ", node->err().size());
    CHECK(node->err() != Contains("\x1b"));
  }
}

TEST_CASE("control: a worker cannot shrink, grow or seal its page") {
  Job job;
  const ControlFolder folder;
  const Node ddprun = RunReporting(job, folder, {"--nproc-per-node=1"},
                                   {"step:1", "misuse", "step:2", "until:" + job.File("go")});
  StatusUntil(job, folder,
              [](const json& now) { return HaveStepped(now, 1) && RanksOf(now)[0]["step"] == 2; });
  job.Touch("go");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->out() != Contains("shrunk"));
  CHECK(ddprun->out() != Contains("grown"));
  CHECK(ddprun->out() != Contains("sealed"));
  CHECK(ddprun->out() == Contains("tried\n"));
}

TEST_CASE("control: a worker without its page's descriptor, or with a page of zeros, is shown") {
  for (const Strings& steps : {Strings{"close", "until:{go}"}, {"misuse", "until:{go}"}}) {
    Job job;
    const ControlFolder folder;
    Strings done = steps;
    done.back() = "until:" + job.File("go");
    const Node ddprun = RunReporting(job, folder, {"--nproc-per-node=1"}, done);
    const Told told = AskUntil(job, folder, {"status"}, Shows("(the program reports no steps)"));
    CHECK_MESSAGE(told.code == 0, told.Describe());
    job.Touch("go");
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  }
}

TEST_CASE("control: a worker that becomes another program reports, and is shown as it was") {
  struct Row {
    const char* first;
    int step;
  };
  // Who has reported keeps the descriptor from what it becomes: that may be anything.
  for (const Row& row : {Row{"print:nothing", 77}, {"step:3", 3}}) {
    Job job;
    const ControlFolder folder;
    const Node ddprun = RunReporting(
        job, folder, {"--nproc-per-node=1"},
        {row.first, "exec:step:77|touch:" + job.File("new") + "|until:" + job.File("go")});
    REQUIRE(job.WaitForFile("new"));
    StatusUntil(job, folder, [&](const json& now) {
      return HaveStepped(now, 1) && RanksOf(now)[0]["step"] == row.step;
    });
    job.Touch("go");
    CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  }
}

}  // namespace
}  // namespace ddprun::testing
