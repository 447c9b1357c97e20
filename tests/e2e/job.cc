#include "tests/e2e/job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include <doctest/doctest.h>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

constexpr char kMarkName[] = "DDPRUN_E2E_JOB";

// A port that was free a moment ago. Below the ephemeral range, so that no socket of another test
// is given it by the kernel; spread by pid, so that two tests hardly ever ask for the same. Each
// only once: two jobs may run side by side before either has bound its own.
int FreePort() {
  static int attempt = 0;
  for (const int last = attempt + 1000; attempt < last; ++attempt) {
    const int port = 12000 + (getpid() * 7 + attempt * 1013) % 18000;
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (is_free) {
      ++attempt;
      return port;
    }
  }
  DDP_CHECK(false);
  return 0;
}

std::string NewMark() {
  static int count = 0;
  return std::to_string(getpid()) + "-" + std::to_string(++count);
}

}  // namespace

Job::Job() : mark_(NewMark()), port_(FreePort()) {}

Job::~Job() { CHECK_MESSAGE(IsGone(), "processes of the job are left"); }

std::unique_ptr<Subprocess> Job::Run(std::vector<std::string> options,
                                     std::vector<std::string> steps, Subprocess::Options how) {
  options.push_back(Runfile("tests/e2e/toy_worker"));
  options.insert(options.end(), steps.begin(), steps.end());
  return RunRaw(std::move(options), std::move(how));
}

std::unique_ptr<Subprocess> Job::RunRaw(std::vector<std::string> arguments,
                                        Subprocess::Options how) {
  arguments.insert(arguments.begin(), Runfile("ddprun"));
  return RunProgram(std::move(arguments), std::move(how));
}

std::unique_ptr<Subprocess> Job::RunProgram(std::vector<std::string> argv,
                                            Subprocess::Options how) {
  how.env[kMarkName] = mark_;
  return std::make_unique<Subprocess>(std::move(argv), std::move(how));
}

std::vector<std::string> Job::NodeOptions(int workers, const std::string& nodes,
                                          std::vector<std::string> more) {
  std::vector<std::string> options = {
      "--nnodes=" + nodes, "--nproc_per_node=" + std::to_string(workers), "--rdzv_id=" + mark_,
      "--rdzv_backend=c10d", "--rdzv_endpoint=" + endpoint()};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

void Job::Touch(const std::string& name) const { std::ofstream(File(name)).flush(); }

bool Job::WaitForFile(const std::string& name) const {
  return Eventually([&] { return HasFile(name); });
}

bool Job::HasFile(const std::string& name) const { return access(File(name).c_str(), F_OK) == 0; }

int Job::PidOfRank(int rank) const {
  const std::vector<int> pids = PidsOfRank(rank);
  return pids.empty() ? 0 : pids.front();
}

std::vector<int> Job::PidsOfRank(int rank) const {
  const std::vector<int> of_rank = ProcessesWithEnv("RANK", std::to_string(rank));
  std::vector<int> pids;
  for (const int pid : Processes()) {
    if (std::find(of_rank.begin(), of_rank.end(), pid) != of_rank.end()) pids.push_back(pid);
  }
  return pids;
}

std::vector<int> Job::Processes() const { return ProcessesWithEnv(kMarkName, mark_); }

bool Job::IsGone(std::chrono::milliseconds patience) const {
  return Eventually([&] { return Processes().empty(); }, patience);
}

}  // namespace ddprun::testing
