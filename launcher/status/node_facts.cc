#include "launcher/status/node_facts.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "launcher/status/process_reader.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// What was read not longer ago is not read again.
constexpr Duration kFresh = std::chrono::milliseconds(900);
constexpr Duration kReadLimit = std::chrono::milliseconds(300);

int64_t TicksPerSecond() { return sysconf(_SC_CLK_TCK); }

int MachineCpus() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace

void NodeFacts::Fill(NodeView& view) {
  const TimePoint now = SteadyNow();
  if (read_at_ == TimePoint{} || read_at_ + kFresh <= now) ReadProcesses(now, view);
  const GpuReading gpus = gpus_.Read(now);
  std::map<int, int> rank_of_pid;
  for (RankView& rank : view.ranks) {
    const auto found = workers_.find(rank.local_rank);
    if (found == workers_.end() || found->second.pid != rank.pid || rank.state == "ended") continue;
    const Worker& worker = found->second;
    FillRank(worker.sample ? &*worker.sample : nullptr, worker.rates, now, rank);
    if (!worker.sample) continue;
    FillRank(gpus, worker.sample->pids, rank);
    for (const int pid : worker.sample->pids) rank_of_pid[pid] = rank.rank;
  }
  FillNode(gpus, view);
  for (Problem& problem : GpuProblems(gpus, rank_of_pid)) {
    problem.node = view.host;
    view.problems.push_back(std::move(problem));
  }
  memory_.Look(now, ReadMemoryFacts(), view);
}

std::vector<int> NodeFacts::PidsOf(int local_rank) const {
  const auto found = workers_.find(local_rank);
  if (found == workers_.end() || !found->second.sample) return {};
  return found->second.sample->pids;
}

void NodeFacts::ReadProcesses(TimePoint now, NodeView& view) {
  read_at_ = now;
  std::vector<int> pids, local_ranks;
  for (const RankView& rank : view.ranks) {
    if (rank.pid <= 0 || rank.state == "ended") continue;
    pids.push_back(rank.pid);
    local_ranks.push_back(rank.local_rank);
  }
  const auto samples = launcher::ReadProcesses(pids, kReadLimit);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto known = workers_.find(local_ranks[i]);
    if (known != workers_.end() && known->second.pid != pids[i]) workers_.erase(known);
    const auto [entry, is_new] = workers_.try_emplace(
        local_ranks[i], Worker{pids[i], ProcessRates(TicksPerSecond(), MachineCpus()), {}});
    Worker& worker = entry->second;
    worker.sample = samples[i];
    if (samples[i]) worker.rates.Add(*samples[i]);
  }
}

}  // namespace ddprun::launcher
