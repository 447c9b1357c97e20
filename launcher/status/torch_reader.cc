#include "launcher/status/torch_reader.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "absl/status/statusor.h"
#include "launcher/dump/worker_server.h"
#include "launcher/status/torch_flights.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(300);
constexpr Duration kInterval = std::chrono::seconds(5);
constexpr int kShare = 100;  // of the time may be spent on it: one in so many
// A rank that ends steps more often than that is known to be well.
constexpr double kRecent_s = 10;

}  // namespace

void TorchReader::Fill(const NodeFacts& facts, int world_size, NodeView& view) {
  const TimePoint deadline = SteadyNow() + kPatience;
  for (RankView& rank : view.ranks) {
    const auto index = static_cast<size_t>(rank.local_rank);
    if (index >= sockets_.size() || sockets_[index].empty() || rank.state != "running") continue;
    if (!rank.groups.empty() || (rank.step && rank.step_age_s < kRecent_s)) continue;
    Worker& worker = workers_[rank.local_rank];
    if (worker.pid != rank.pid) worker = {.pid = rank.pid};
    const TimePoint now = SteadyNow();
    if (now >= worker.again_at && now < deadline) {
      Ask(facts.PidsOf(rank.local_rank), world_size, deadline, rank, worker);
      const Duration took = SteadyNow() - now;
      worker.again_at = now + std::max(kInterval, kShare * took);
    }
    rank.groups = worker.groups;
  }
}

void TorchReader::Ask(const std::vector<int>& pids, int world_size, TimePoint deadline,
                      const RankView& view, Worker& worker) {
  const absl::StatusOr<std::string> flights =
      AskWorkerServer(sockets_[static_cast<size_t>(view.local_rank)], pids,
                      WorkerServerWish::kFlightRecord, deadline);
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  worker.groups = GroupsOfFlights(flights.value_or(""), view.rank, world_size,
                                  std::chrono::nanoseconds(unix_now).count());
}

}  // namespace ddprun::launcher
