#include "tests/e2e/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include <doctest/doctest.h>

#include "rendezvous/base/check.h"
#include "tests/support/free_port.h"

namespace ddprun::testing {
namespace {

constexpr char kMarkName[] = "DDPRUN_E2E_JOB";

std::string NewMark() {
  static int count = 0;
  return std::to_string(getpid()) + "-" + std::to_string(++count);
}

}  // namespace

Job::Job(const std::string& ddprun)
    : ddprun_(Runfile(ddprun)), mark_(NewMark()), port_(FreePort()) {}

Job::~Job() { CHECK_MESSAGE(IsGone(), "processes of the job are left"); }

std::unique_ptr<Subprocess> Job::Run(std::vector<std::string> options,
                                     std::vector<std::string> steps, Subprocess::Options how) {
  options.push_back(Runfile("tests/e2e/toy_worker"));
  options.insert(options.end(), steps.begin(), steps.end());
  return RunRaw(std::move(options), std::move(how));
}

std::unique_ptr<Subprocess> Job::RunRaw(std::vector<std::string> arguments,
                                        Subprocess::Options how) {
  arguments.insert(arguments.begin(), ddprun_);
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

void AwaitMissingNodes(Subprocess& node, int count) {
  const std::string words = "waiting for " + std::to_string(count) + " more";
  REQUIRE_MESSAGE(node.WaitForErr(words), node.Describe());
}

}  // namespace ddprun::testing
