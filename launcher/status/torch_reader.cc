#include "launcher/status/torch_reader.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "launcher/status/torch_flights.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(300);
constexpr Duration kLeast = std::chrono::milliseconds(100);  // with less left nobody is asked
constexpr Duration kInterval = std::chrono::seconds(5);
constexpr Duration kKept = std::chrono::seconds(60);
constexpr int kShare = 100;  // of the time may be spent on it: one in so many
// A rank that ends steps more often than that is known to be well.
constexpr double kRecent_s = 10;

std::vector<GroupView> GroupsOf(const FlightRecords& flights, int rank, int world_size) {
  const std::chrono::nanoseconds unix_now = std::chrono::system_clock::now().time_since_epoch();
  std::vector<GroupView> groups;
  for (const std::string* json : {&flights.gloo, &flights.nccl}) {
    for (GroupView& group : GroupsOfFlights(*json, rank, world_size, unix_now.count())) {
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace

TorchReader::Means TorchReader::OfThisMachine() {
  return {.ask = AskFlightRecords, .clock = SteadyNow};
}

bool TorchReader::IsForUs(const RankView& rank) const {
  const auto index = static_cast<size_t>(rank.local_rank);
  if (index >= sockets_.size() || sockets_[index].empty() || rank.state != "running") return false;
  return rank.groups.empty() && !(rank.step && rank.step_age_s < kRecent_s);
}

void TorchReader::Fill(const std::function<std::vector<int>(int local_rank)>& pids_of,
                       int world_size, NodeView& view) {
  const TimePoint began = means_.clock();
  std::vector<std::pair<Worker*, RankView*>> workers;
  for (RankView& rank : view.ranks) {
    if (!IsForUs(rank)) continue;
    Worker& worker = workers_[rank.local_rank];
    if (worker.pid != rank.pid) worker = {.pid = rank.pid};
    workers.emplace_back(&worker, &rank);
  }
  // Who has waited longest, so that everybody has a turn.
  std::stable_sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) {
    return a.first->again_at < b.first->again_at;
  });
  const TimePoint deadline = began + kPatience;
  for (const auto& [worker, rank] : workers) {
    const TimePoint now = means_.clock();
    if (now < worker->again_at || now + kLeast > deadline) continue;
    const absl::StatusOr<FlightRecords> flights = means_.ask(
        sockets_[static_cast<size_t>(rank->local_rank)], pids_of(rank->local_rank), deadline);
    if (flights.ok()) {
      worker->answered_at = means_.clock();
      worker->groups = GroupsOf(*flights, rank->rank, world_size);
    }
    worker->again_at = now + std::max(kInterval, kShare * (means_.clock() - now));
  }
  const TimePoint now = means_.clock();
  for (const auto& [worker, rank] : workers) {
    if (!worker->answered_at || now > *worker->answered_at + kKept) continue;
    rank->groups = worker->groups;
    for (GroupView& group : rank->groups) {
      group.asked_s = std::chrono::duration<double>(now - *worker->answered_at).count();
    }
  }
}

}  // namespace ddprun::launcher
