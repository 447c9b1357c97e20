#include "launcher/status/gpu_facts.h"

#include <algorithm>
#include <cmath>

#include "launcher/status/gpu_words.h"

namespace ddprun::launcher {
namespace {

std::string NameOf(const GpuFacts& gpu) {
  std::string name = "GPU " + std::to_string(gpu.view.index);
  if (!gpu.view.name.empty()) name += " (" + gpu.view.name + ")";
  return name;
}

std::vector<int> RanksOn(const GpuFacts& gpu, const std::map<int, int>& rank_of_pid) {
  std::vector<int> ranks;
  for (const GpuFacts::Use& use : gpu.uses) {
    const auto found = rank_of_pid.find(use.pid);
    if (found != rank_of_pid.end()) ranks.push_back(found->second);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

void FillNode(const GpuReading& reading, NodeView& node) {
  node.gpus.clear();
  for (const GpuFacts& gpu : reading.gpus) node.gpus.push_back(gpu.view);
}

void FillRank(const GpuReading& reading, const std::vector<int>& pids, RankView& rank) {
  double share = 0;
  int shares = 0;
  std::optional<int64_t> memory;
  for (const GpuFacts& gpu : reading.gpus) {
    bool is_used = false;
    for (const GpuFacts::Use& use : gpu.uses) {
      if (std::find(pids.begin(), pids.end(), use.pid) == pids.end()) continue;
      is_used = true;
      if (use.memory) memory = memory.value_or(0) + *use.memory;
    }
    if (!is_used || !gpu.view.utilisation) continue;
    share += *gpu.view.utilisation;
    ++shares;
  }
  if (shares > 0) rank.gpu = share / shares;
  if (memory) rank.gpu_memory = memory;
}

std::vector<Problem> GpuProblems(const GpuReading& reading, const std::map<int, int>& rank_of_pid) {
  std::vector<Problem> problems;
  if (reading.hang_s > 0) {
    problems.push_back({.kind = "gpu",
                        .text = "NVIDIA's driver has not answered for " +
                                std::to_string(std::lround(reading.hang_s)) +
                                " s: it, or a GPU, hangs",
                        .since_s = reading.hang_s});
  }
  for (const GpuFacts& gpu : reading.gpus) {
    const std::vector<int> ranks = RanksOn(gpu, rank_of_pid);
    for (const int xid : gpu.view.xids) {
      if (!IsXidProblem(xid)) continue;
      std::string text = NameOf(gpu) + " reported XID " + std::to_string(xid);
      if (const std::string meaning = XidMeaning(xid); !meaning.empty()) text += ": " + meaning;
      problems.push_back({.kind = "gpu", .text = std::move(text), .ranks = ranks});
    }
    if (gpu.is_lost) {
      problems.push_back({.kind = "gpu",
                          .text = NameOf(gpu) + " is lost: the driver reaches it no more",
                          .ranks = ranks});
    }
    if (IsThrottleProblem(gpu.throttle_reasons)) {
      std::string text = NameOf(gpu) + " runs slower than it could: " + gpu.view.throttle;
      if (gpu.view.temperature) text += " at " + std::to_string(*gpu.view.temperature) + " °C";
      problems.push_back({.kind = "throttling", .text = std::move(text), .ranks = ranks});
    }
  }
  return problems;
}

}  // namespace ddprun::launcher
