#include "tests/e2e/etcd_job.h"

#include <signal.h>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

constexpr char kHosts[] = "coordinator hosted here";

}  // namespace

std::vector<std::string> EtcdJob::Options(const std::string& nodes, std::vector<std::string> more) {
  std::vector<std::string> options = {"--nnodes=" + nodes, "--nproc-per-node=1",
                                      "--rdzv-id=" + run_, "--rdzv-backend=etcd",
                                      "--rdzv-endpoint=" + etcd_.endpoints()};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

void EtcdJob::StartNode(const std::string& nodes, std::vector<std::string> more,
                        Subprocess::Options how) {
  how.env["DDPRUN_LOG_LEVEL"] = "info";
  nodes_.push_back(job_.Run(
      Options(nodes, std::move(more)),
      {"touch:" + job_.File("up{rank}.{restart}"), "until:" + job_.File("go")}, std::move(how)));
}

void EtcdJob::StartNodes(int count, const std::string& nodes, std::vector<std::string> more) {
  for (int i = 0; i < count; ++i) StartNode(nodes, more);
}

void EtcdJob::AwaitWorkers(int restart, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string up = "up" + std::to_string(rank) + "." + std::to_string(restart);
    REQUIRE_MESSAGE(job_.WaitForFile(up), up, Describe());
  }
}

void EtcdJob::CheckAllEndWith(int exit_code) {
  for (const auto& node : nodes_) REQUIRE_MESSAGE(node->Wait() == exit_code, Describe());
}

size_t EtcdJob::Count(size_t node, const std::string& text) const {
  return CountOf(nodes_[node]->err(), text);
}

size_t EtcdJob::Leading(size_t times) {
  static_cast<void>(SecondsUntilLeading(times));
  const std::string leader =
      etcd_.Ctl({"get", "--print-value-only", "/ddprun/" + run_ + "/leader"});
  const std::string first = "ddprun 1 ";
  REQUIRE_MESSAGE(leader.starts_with(first), leader, Describe());
  const std::string address = leader.substr(first.size(), leader.rfind(' ') - first.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::string err = nodes_[i]->err();
    const size_t last = err.rfind(kHosts);
    if (last != std::string::npos && err.find(address, last) != std::string::npos) return i;
  }
  FAIL("nobody says that it hosts at ", address, Describe());
  return 0;
}

double EtcdJob::SecondsUntilLeading(size_t times) {
  const auto began = std::chrono::steady_clock::now();
  REQUIRE_MESSAGE(Eventually([&] {
                    size_t count = 0;
                    for (size_t i = 0; i < nodes_.size(); ++i) count += Count(i, kHosts);
                    return count >= times;
                  }),
                  times, Describe());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void EtcdJob::CheckTakesOver(const std::string& after, size_t times) {
  constexpr double kWithoutWatch_s = 15;
  const double seconds = SecondsUntilLeading(times);
  MESSAGE("takeover after ", after, ": ", seconds, " s");
  CHECK(seconds < kWithoutWatch_s);
}

std::vector<int> EtcdJob::Pids(int world_size) const {
  std::vector<int> pids;
  for (int rank = 0; rank < world_size; ++rank) pids.push_back(job_.PidOfRank(rank));
  return pids;
}

int EtcdJob::WorkerOf(size_t node) const {
  const std::string child = "\nPPid:\t" + std::to_string(nodes_[node]->pid()) + "\n";
  for (const int pid : Pids(static_cast<int>(nodes_.size()))) {
    const std::string status = ReadFile("/proc/" + std::to_string(pid) + "/status");
    if (status.find(child) != std::string::npos) return pid;
  }
  FAIL("agent ", node, " has no worker", Describe());
  return 0;
}

std::string EtcdJob::Describe() const {
  std::string text;
  for (const auto& node : nodes_) text += node->Describe();
  return text;
}

void EtcdJob::Kill(size_t index) {
  nodes_[index]->Signal(SIGKILL);
  REQUIRE(nodes_[index]->Wait() == 128 + SIGKILL);
  nodes_.erase(nodes_.begin() + static_cast<ptrdiff_t>(index));
}

}  // namespace ddprun::testing
