#include "tests/faults/wired.h"

#include <algorithm>
#include <filesystem>

#include "tests/support/contains.h"

namespace ddprun::testing {

void Wired::Start(const std::vector<int>& hosts, const std::vector<std::string>& more,
                  const std::vector<std::string>& steps) {
  options_ = {"--nnodes=" + std::to_string(hosts.size()), "--nproc-per-node=1",
              "--rdzv-id=" + bench_.job().id(), "--rdzv-backend=c10d",
              "--rdzv-endpoint=" + wire_.Address(1) + ":29400"};
  options_.insert(options_.end(), more.begin(), more.end());
  steps_ = steps;
  for (const int host : hosts) StartOn(host);
}

void Wired::StartOn(int host) {
  std::vector<std::string> steps = {
      "touch:" + bench_.job().File("begun" + std::to_string(host) + ".{pid}"),
      "touch:" + bench_.job().File("up{rank}.{restart}")};
  steps.insert(steps.end(), steps_.begin(), steps_.end());
  nodes_.push_back(bench_.Run(options_, steps,
                              {.env = {{"DDPRUN_LOG_LEVEL", "info"}}, .netns = wire_.Name(host)}));
}

bool Wired::AwaitWorkers(int restart) {
  return bench_.Eventually([&] {
    for (size_t rank = 0; rank < nodes_.size(); ++rank) {
      if (!bench_.job().HasFile("up" + std::to_string(rank) + "." + std::to_string(restart))) {
        return false;
      }
    }
    return true;
  });
}

std::vector<int> Wired::PidsBegun(int host) const {
  const std::string prefix = "begun" + std::to_string(host) + ".";
  std::vector<int> pids;
  for (const auto& entry : std::filesystem::directory_iterator(bench_.job().File("."))) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) pids.push_back(std::stoi(name.substr(prefix.size())));
  }
  return pids;
}

size_t Wired::Starts(int host) const { return PidsBegun(host).size(); }

int Wired::PidOn(int host) const {
  const std::vector<int> alive = bench_.job().Processes();
  for (const int pid : PidsBegun(host)) {
    if (std::find(alive.begin(), alive.end(), pid) != alive.end()) return pid;
  }
  return 0;
}

bool Wired::AwaitRunning(const std::vector<int>& hosts, size_t starts) {
  return bench_.Eventually([&] {
    return std::all_of(hosts.begin(), hosts.end(),
                       [&](int host) { return Starts(host) == starts && PidOn(host) != 0; });
  });
}

bool Wired::AwaitStopped(const std::vector<int>& hosts) {
  return bench_.Eventually([&] {
    return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return PidOn(host) == 0; });
  });
}

void Wired::NoteDescriptors() {
  for (const Bench::Node& node : nodes_) bench_.NoteDescriptors(*node);
}

bool Wired::AllEndWith(int exit_code) {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const Bench::Node& node) { return bench_.Ends(*node, exit_code); });
}

std::string Wired::Describe() const {
  std::string text;
  for (const Bench::Node& node : nodes_) text += node->Describe();
  return text;
}

size_t Wired::Count(const std::string& text) const {
  size_t count = 0;
  for (const Bench::Node& node : nodes_) count += CountOf(node->err(), text);
  return count;
}

}  // namespace ddprun::testing
