#include "tests/faults/apart.h"

namespace ddprun::testing {

Apart::Apart(Bench& bench, const std::map<std::string, std::string>& env) : bench_(bench) {
  StartCoordinator(env);
}

bool Apart::StartCoordinator(const std::map<std::string, std::string>& env) {
  const std::string port = std::to_string(bench_.job().port());
  coordinator_ = bench_.RunRaw(
      {"coordinator", "--bind=127.0.0.1:" + port, "--rdzv-id=faults" + port}, {.env = env});
  return bench_.Says(*coordinator_, "listening on");
}

bool Apart::StartNodes(const std::vector<std::string>& more, std::array<uint16_t, 2> ports,
                       const std::map<std::string, std::string>& env) {
  Job& job = bench_.job();
  for (const uint16_t port : ports) {
    std::vector<std::string> options = job.NodeOptions(1, "2", more);
    // The last ones win.
    options.push_back("--rdzv-id=faults" + std::to_string(job.port()));
    if (port != 0) options.push_back("--rdzv-endpoint=127.0.0.1:" + std::to_string(port));
    Subprocess::Options how;
    if (nodes_.size() == 1) how.env = env;
    how.env["DDPRUN_LOG_LEVEL"] = "debug";
    nodes_.push_back(bench_.Run(
        options, {"touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go")}, how));
    if (nodes_.size() == 1 && !bench_.Says(*nodes_[0], "waiting for 1 more")) return false;
  }
  if (!AwaitWorkers(0)) return false;
  for (const Bench::Node& node : nodes_) bench_.NoteDescriptors(*node);
  return true;
}

bool Apart::AwaitWorkers(int restart) {
  return bench_.Eventually([&] {
    return bench_.job().HasFile("up0." + std::to_string(restart)) &&
           bench_.job().HasFile("up1." + std::to_string(restart));
  });
}

std::vector<int> Apart::Pids() const {
  return {bench_.job().PidOfRank(0), bench_.job().PidOfRank(1)};
}

std::string Apart::Finish() {
  const std::string grown = bench_.CheckDescriptors();
  if (!grown.empty()) return grown;
  bench_.job().Touch("go");
  for (const Bench::Node& node : nodes_) {
    if (!bench_.Ends(*node, 0)) return "a node does not end with 0:" + node->Describe();
  }
  if (bench_.Ends(*coordinator_, 0)) return "";
  return "the coordinator does not end with 0:" + coordinator_->Describe();
}

bool Apart::HaveBothSaid(const std::string& text, size_t times) const {
  for (const Bench::Node& node : nodes_) {
    if (!bench_.Says(*node, text, times)) return false;
  }
  return true;
}

}  // namespace ddprun::testing
