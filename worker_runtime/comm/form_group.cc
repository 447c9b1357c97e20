#include "worker_runtime/comm/form_group.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/local/local_engine.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/nccl/form_nccl.h"
#include "worker_runtime/comm/nccl/op_memory.h"
#include "worker_runtime/comm/queued_communicator.h"
#include "worker_runtime/comm/shm/shm_engine.h"
#include "worker_runtime/comm/tcp/tcp_engine.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr char kPlanKey[] = "plan";
constexpr char kFailurePrefix[] = "failed: ";
// By how much the others outwait rank 0, which names those who did not come.
constexpr std::chrono::seconds kGrace(5);

std::string CapabilitiesKey(int rank) { return absl::StrCat("rank/", rank); }

Milliseconds Until(Clock::time_point deadline) {
  return std::max(Milliseconds(1),
                  std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
}

std::string TimeoutMessage(const GroupMember& member, const std::vector<int>& missing) {
  return absl::StrCat("forming the group of ", member.world_size, " ranks timed out after ",
                      NameDuration(member.timeout), ": ", NameRanks(missing), " did not come");
}

// Rank 0: waits for all, then decides.
absl::StatusOr<Plan> Decide(Store& store, const GroupMember& member, Clock::time_point deadline) {
  std::vector<Capabilities> all;
  std::vector<int> missing;
  for (int rank = 0; rank < member.world_size; ++rank) {
    auto text = store.Get(CapabilitiesKey(rank), Until(deadline));
    if (!text.ok()) {
      if (!absl::IsDeadlineExceeded(text.status())) return text.status();
      missing.push_back(rank);
      continue;
    }
    auto capabilities = DecodeCapabilities(*text);
    if (!capabilities.ok()) {
      return absl::Status(capabilities.status().code(),
                          absl::StrCat("rank ", rank, ": ", capabilities.status().message()));
    }
    all.push_back(std::move(*capabilities));
  }
  if (!missing.empty()) return absl::DeadlineExceededError(TimeoutMessage(member, missing));
  return MakePlan(all);
}

absl::StatusOr<Plan> DecideAndTell(Store& store, const GroupMember& member,
                                   Clock::time_point deadline) {
  auto plan = Decide(store, member, deadline);
  const std::string text =
      plan.ok() ? Encode(*plan)
                : absl::StrCat(kFailurePrefix, static_cast<int>(plan.status().code()), " ",
                               std::string(plan.status().message()));
  absl::Status told = store.Set(kPlanKey, text);
  if (plan.ok() && !told.ok()) return told;
  return plan;
}

absl::StatusOr<Plan> Follow(Store& store, const GroupMember& member, Clock::time_point deadline) {
  auto text = store.Get(kPlanKey, Until(deadline + kGrace));
  if (absl::IsDeadlineExceeded(text.status())) {
    return absl::DeadlineExceededError(TimeoutMessage(member, {0}));
  }
  if (!text.ok()) return text.status();
  const size_t prefix = sizeof kFailurePrefix - 1;
  if (text->compare(0, prefix, kFailurePrefix) == 0) {
    const int code = std::atoi(text->c_str() + prefix);
    const size_t space = text->find(' ', prefix);
    return absl::Status(static_cast<absl::StatusCode>(code),
                        text->substr(std::min(space, text->size() - 1) + 1));
  }
  return DecodePlan(*text, member.world_size);
}

Endpoint EndpointOf(int rank, const Capabilities& capabilities) {
  return {rank, capabilities.host, capabilities.address, capabilities.nonce};
}

// The neighbour of this rank's lane on a node whose first rank is `first`.
absl::StatusOr<Endpoint> Neighbour(Store& store, int first, int lane, Clock::time_point deadline) {
  if (first < 0) return Endpoint();
  auto text = store.Get(CapabilitiesKey(first + lane), Until(deadline));
  if (!text.ok()) return text.status();
  auto capabilities = DecodeCapabilities(*text);
  if (!capabilities.ok()) return capabilities.status();
  return EndpointOf(first + lane, *capabilities);
}

absl::StatusOr<ChainLinks> ConnectLane(Store& store, int rank, const Capabilities& capabilities,
                                       const Place& place, Clock::time_point deadline) {
  if (place.index >= place.lanes) return ChainLinks();
  auto previous = Neighbour(store, place.previous_first, place.index, deadline);
  if (!previous.ok()) return previous.status();
  auto next = Neighbour(store, place.next_first, place.index, deadline);
  if (!next.ok()) return next.status();
  return ConnectChain(store, EndpointOf(rank, capabilities), *previous, *next, deadline);
}

bool WantsGpu(const Capabilities& capabilities) {
  return capabilities.device != DeviceChoice::kCpu;
}

// The communicator for host memory, and where the plan is on GPUs the one for them over it.
absl::StatusOr<FormedGroup> Complete(Store* store, const Plan& plan, const GroupMember& member,
                                     std::unique_ptr<Engine> engine, std::unique_ptr<Device> device,
                                     Clock::time_point deadline) {
  FormedGroup formed;
  formed.description = plan.reason;
  auto host = std::make_unique<QueuedCommunicator>(
      std::move(engine), member.timeout, member.error_file, member.job_ranks,
      plan.is_on_gpus ? HostMemoryCheck(*device) : nullptr);
  if (!plan.is_on_gpus) {
    formed.communicator = std::move(host);
    return formed;
  }
  formed.gpu = device->ordinal();
  const NcclMember nccl_member{
      .timeout = member.timeout, .deadline = deadline, .connect_store = member.connect_store};
  auto on_gpus = FormNccl(store, plan, nccl_member, std::move(device), std::move(host));
  if (!on_gpus.ok()) return on_gpus.status();
  formed.communicator = *std::move(on_gpus);
  return formed;
}

}  // namespace

absl::StatusOr<FormedGroup> FormGroup(Store& store, const GroupMember& member) {
  const Clock::time_point deadline = Clock::now() + member.timeout;
  Capabilities capabilities = member.capabilities;
  capabilities.nonce = MakeNonce();
  std::unique_ptr<Device> device;
  if (WantsGpu(capabilities)) {
    capabilities.gpu = ProbeGpu(member.local_rank, /*needs_nccl=*/true, &device);
  }
  absl::Status status = store.Set(CapabilitiesKey(member.rank), Encode(capabilities));
  if (!status.ok()) return status;
  auto plan =
      member.rank == 0 ? DecideAndTell(store, member, deadline) : Follow(store, member, deadline);
  if (!plan.ok()) return plan.status();
  const Place place = PlaceOf(*plan, member.rank);
  ShmGroup shared;
  if (place.ranks.size() > 1) {
    const std::string key = absl::StrCat("node/", place.ranks[0]);
    auto joined = JoinShmGroup(store, key, place.ranks, place.index, deadline);
    if (!joined.ok()) return joined.status();
    shared = std::move(*joined);
  }
  std::unique_ptr<Engine> engine;
  if (place.node_count == 1) {
    engine = std::make_unique<ShmEngine>(std::move(shared));
  } else {
    auto links = ConnectLane(store, member.rank, capabilities, place, deadline);
    if (!links.ok()) return links.status();
    engine = std::make_unique<TcpEngine>(
        *plan, member.rank, std::move(shared), std::move(*links),
        std::make_unique<FailureBoard>("host", member.rank, member.world_size,
                                       member.connect_store));
  }
  return Complete(&store, *plan, member, std::move(engine), std::move(device), deadline);
}

absl::StatusOr<FormedGroup> FormLocalGroup(const GroupMember& member) {
  Capabilities capabilities = member.capabilities;
  std::unique_ptr<Device> device;
  if (WantsGpu(capabilities)) {
    const bool needs_nccl = capabilities.backend == Backend::kNccl;
    capabilities.gpu = ProbeGpu(member.local_rank, needs_nccl, &device);
  }
  const absl::StatusOr<Plan> plan = MakePlan({capabilities});
  if (!plan.ok()) return plan.status();
  return Complete(nullptr, *plan, member, std::make_unique<LocalEngine>(), std::move(device),
                  Clock::now() + member.timeout);
}

}  // namespace ddp::internal
