#include "worker_runtime/comm/form_group.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/net/listening_socket.h"
#include "worker_runtime/comm/group_label.h"
#include "worker_runtime/comm/local/local_engine.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/messages/message_peers.h"
#include "worker_runtime/comm/nccl/form_nccl.h"
#include "worker_runtime/comm/nccl/nccl_encryption.h"
#include "worker_runtime/comm/nccl/op_memory.h"
#include "worker_runtime/comm/queued_communicator.h"
#include "worker_runtime/comm/refused.h"
#include "worker_runtime/comm/shm/shm_engine.h"
#include "worker_runtime/comm/tcp/tcp_engine.h"
#include "worker_runtime/gpu/gpu_runtime.h"

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

// What a rank tells the others.
struct Announcement {
  Capabilities capabilities;
  uint16_t message_port = 0;  // 0: it could not open one
};

std::string Encode(const Announcement& announcement) {
  return absl::StrCat(Encode(announcement.capabilities), "\n", announcement.message_port);
}

std::string EncodeFailure(const absl::Status& status) {
  return absl::StrCat(kFailurePrefix, static_cast<int>(status.code()), " ",
                      std::string(status.message()));
}

// Ok: the text tells of no failure.
absl::Status FailureIn(const std::string& text) {
  const size_t prefix = sizeof kFailurePrefix - 1;
  if (text.compare(0, prefix, kFailurePrefix) != 0) return absl::OkStatus();
  const int code = std::atoi(text.c_str() + prefix);
  const size_t space = text.find(' ', prefix);
  return absl::Status(static_cast<absl::StatusCode>(code),
                      text.substr(std::min(space, text.size() - 1) + 1));
}

absl::StatusOr<Announcement> DecodeAnnouncement(const std::string& text) {
  if (absl::Status failure = FailureIn(text); !failure.ok()) return failure;
  const std::pair<std::string, std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 1));
  auto capabilities = DecodeCapabilities(lines.first);
  if (!capabilities.ok()) return capabilities.status();
  uint32_t port = 0;
  if (!absl::SimpleAtoi(lines.second, &port) || port > UINT16_MAX) {
    return absl::InvalidArgumentError("the store holds no port of a rank");
  }
  return Announcement{*std::move(capabilities), static_cast<uint16_t>(port)};
}

// What rank 0 tells all.
struct Decision {
  Plan plan;
  MessagePeers peers;
  std::string told;  // the text of it
};

// REQUIRES: two ranks or more.
absl::StatusOr<Decision> MakeDecision(const std::vector<Announcement>& all) {
  std::vector<Capabilities> capabilities;
  Decision decision;
  for (const Announcement& one : all) {
    capabilities.push_back(one.capabilities);
    decision.peers.places.push_back({one.capabilities.address, one.message_port});
  }
  decision.peers.hello = capabilities[0].nonce;
  decision.peers.answer = capabilities[1].nonce;
  auto plan = MakePlan(capabilities);
  if (!plan.ok()) return plan.status();
  decision.plan = *std::move(plan);
  return decision;
}

std::string Encode(const Decision& decision) {
  return absl::StrCat(Encode(decision.plan), "\n", Encode(decision.peers));
}

absl::StatusOr<Decision> DecodeDecision(const std::string& text, int world_size) {
  const std::pair<std::string, std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 1));
  auto plan = DecodePlan(lines.first, world_size);
  if (!plan.ok()) return plan.status();
  auto peers = DecodeMessagePeers(lines.second, world_size);
  if (!peers.ok()) return peers.status();
  return Decision{*std::move(plan), *std::move(peers), text};
}

// Rank 0: waits for all, then decides.
absl::StatusOr<Decision> Decide(Store& store, const GroupMember& member, const Announcement& own,
                                Clock::time_point deadline) {
  std::vector<Announcement> all = {own};
  std::vector<int> missing;
  for (int rank = 1; rank < member.world_size; ++rank) {
    auto text = store.Get(CapabilitiesKey(rank), Until(deadline));
    if (!text.ok()) {
      if (!absl::IsDeadlineExceeded(text.status())) return text.status();
      missing.push_back(rank);
      continue;
    }
    auto announcement = DecodeAnnouncement(*text);
    if (!announcement.ok()) {
      return absl::Status(announcement.status().code(),
                          absl::StrCat("rank ", rank, ": ", announcement.status().message()));
    }
    all.push_back(std::move(*announcement));
  }
  if (!missing.empty()) return absl::DeadlineExceededError(TimeoutMessage(member, missing));
  return MakeDecision(all);
}

absl::StatusOr<Decision> DecideAndTell(Store& store, const GroupMember& member,
                                       const Announcement& own, Clock::time_point deadline) {
  auto decision = Decide(store, member, own, deadline);
  const std::string text = decision.ok() ? Encode(*decision) : EncodeFailure(decision.status());
  absl::Status told = store.Set(kPlanKey, text);
  if (!decision.ok()) return decision;
  if (!told.ok()) return told;
  decision->told = text;
  return decision;
}

absl::StatusOr<Decision> Follow(Store& store, const GroupMember& member,
                                Clock::time_point deadline) {
  auto text = store.Get(kPlanKey, Until(deadline + kGrace));
  if (absl::IsDeadlineExceeded(text.status())) {
    return absl::DeadlineExceededError(TimeoutMessage(member, {0}));
  }
  if (!text.ok()) return text.status();
  if (absl::Status failure = FailureIn(*text); !failure.ok()) return failure;
  return DecodeDecision(*text, member.world_size);
}

// Of a rank that can announce nothing: rank 0 waits for what each announces, the others for rank
// 0's decision alone. Best effort: at worst they wait for their timeout.
void TellFailure(Store& store, int rank, const absl::Status& status) {
  try {
    if (rank != 0) {
      (void)store.Set(CapabilitiesKey(rank), EncodeFailure(status));
      return;
    }
    const std::string told = absl::StrCat("rank 0: ", status.message());
    (void)store.Set(kPlanKey, EncodeFailure(absl::Status(status.code(), told)));
  } catch (const std::bad_alloc&) {  // which may be what it would tell
  }
}

Endpoint EndpointOf(int rank, const Capabilities& capabilities) {
  return {rank, capabilities.host, capabilities.address, capabilities.nonce};
}

// The neighbour of this rank's lane on a node whose first rank is `first`.
absl::StatusOr<Endpoint> Neighbour(Store& store, int first, int lane, Clock::time_point deadline) {
  if (first < 0) return Endpoint();
  auto text = store.Get(CapabilitiesKey(first + lane), Until(deadline));
  if (!text.ok()) return text.status();
  auto announcement = DecodeAnnouncement(*text);
  if (!announcement.ok()) return announcement.status();
  return EndpointOf(first + lane, announcement->capabilities);
}

absl::StatusOr<ChainLinks> ConnectLane(Store& store, int rank, const Capabilities& capabilities,
                                       const Place& place,
                                       const std::shared_ptr<const LinkKey>& key,
                                       Clock::time_point deadline) {
  if (place.index >= place.lanes) return ChainLinks();
  auto previous = Neighbour(store, place.previous_first, place.index, deadline);
  if (!previous.ok()) return previous.status();
  auto next = Neighbour(store, place.next_first, place.index, deadline);
  if (!next.ok()) return next.status();
  return ConnectChain(store, EndpointOf(rank, capabilities), *previous, *next, key, deadline);
}

bool WantsGpu(const Capabilities& capabilities) {
  return capabilities.device != DeviceChoice::kCpu;
}

// Where other ranks connect to for messages. Without an address of its own a rank is reached on its
// host alone.
absl::StatusOr<ddprun::UniqueFd> ListenForMessages(Capabilities* capabilities) {
  if (capabilities->address.empty()) capabilities->address = "127.0.0.1";
  return ddprun::rendezvous::ListenOn(capabilities->address, 0);
}

// What it was told is of this group alone: the secrets of two of its ranks are in it.
GroupLabel LabelOf(const GroupMember& member, const std::string& told) {
  std::vector<int> ranks = member.job_ranks;
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(member.world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  return MakeGroupLabel(told, ranks);
}

// The communicator for host memory, and where the plan is on GPUs the one for them over it.
absl::StatusOr<FormedGroup> Complete(Store* store, const Plan& plan, const GroupMember& member,
                                     std::unique_ptr<Engine> engine, MessagePeers peers,
                                     ddprun::UniqueFd listener,
                                     const std::shared_ptr<const LinkKey>& key,
                                     std::unique_ptr<Device> device, const GroupLabel& label,
                                     Clock::time_point deadline) {
  FormedGroup formed;
  formed.description = plan.reason;
  auto host = std::make_unique<QueuedCommunicator>(
      std::move(engine), member.timeout, member.error_file, member.job_ranks,
      plan.is_on_gpus ? HostMemoryCheck(*device) : nullptr, label);
  if (absl::Status status = host->Start(); !status.ok()) {
    // The others have a group, and would wait for this rank in it.
    host->Abort(std::string(status.message()));
    return status;
  }
  if (!peers.places.empty()) host->TakeMessages(std::move(peers), std::move(listener), key);
  if (!plan.is_on_gpus) {
    formed.communicator = std::move(host);
    return formed;
  }
  formed.gpu = device->ordinal();
  const NcclMember nccl_member{.timeout = member.timeout,
                               .deadline = deadline,
                               .connect_store = member.connect_store,
                               .label = label,
                               .key = plan.encrypts_nccl ? key : nullptr};
  if (plan.uses_nccl && key != nullptr && member.rank == 0 && plan.node_sizes.size() > 1) {
    plan.encrypts_nccl ? SayWhatNcclEncrypts() : SayNcclIsPlain(*Nccl());
  }
  auto on_gpus = FormNccl(store, plan, nccl_member, std::move(device), std::move(host));
  if (!on_gpus.ok()) return on_gpus.status();
  formed.communicator = *std::move(on_gpus);
  return formed;
}

// As FormGroup(); without memory it throws.
absl::StatusOr<FormedGroup> FormWithMemory(Store& store, const GroupMember& member) {
  const Clock::time_point deadline = Clock::now() + member.timeout;
  Capabilities capabilities = member.capabilities;
  capabilities.nonce = MakeNonce();
  std::shared_ptr<const LinkKey> key;
  if (!member.round_key.empty()) {
    auto made = LinkKey::Make(member.round_key);
    if (!made.ok()) {
      TellFailure(store, member.rank, made.status());
      return made.status();
    }
    key = *std::move(made);
  }
  capabilities.has_key = key != nullptr;
  std::unique_ptr<Device> device;
  if (WantsGpu(capabilities)) {
    capabilities.gpu =
        ProbeGpu(member.local_rank, /*needs_nccl=*/true, capabilities.has_key, &device);
  }
  auto listener = ListenForMessages(&capabilities);
  if (absl::IsResourceExhausted(listener.status())) {
    absl::Status status = Refused(absl::StrCat("listen on ", capabilities.address), errno);
    TellFailure(store, member.rank, status);
    return status;
  }
  const uint16_t port = listener.ok() ? ddprun::rendezvous::LocalPort(listener->get()) : 0;
  const Announcement own{capabilities, port};
  absl::Status status = store.Set(CapabilitiesKey(member.rank), Encode(own));
  if (!status.ok()) return status;
  auto decision = member.rank == 0 ? DecideAndTell(store, member, own, deadline)
                                   : Follow(store, member, deadline);
  if (!decision.ok()) return decision.status();
  const Plan& plan = decision->plan;
  const Place place = PlaceOf(plan, member.rank);
  ShmGroup shared;
  if (place.ranks.size() > 1) {
    const std::string key = absl::StrCat("node/", place.ranks[0]);
    auto joined = JoinShmGroup(store, key, place.ranks, place.index, deadline);
    if (!joined.ok()) {
      if (place.node_count > 1) TellNoLinks(store, member.rank, joined.status());
      return joined.status();
    }
    shared = std::move(*joined);
  }
  std::unique_ptr<Engine> engine;
  if (place.node_count == 1) {
    engine = std::make_unique<ShmEngine>(std::move(shared));
  } else {
    auto links = ConnectLane(store, member.rank, capabilities, place, key, deadline);
    if (!links.ok()) return links.status();
    engine = std::make_unique<TcpEngine>(
        plan, member.rank, std::move(shared), std::move(*links),
        std::make_unique<FailureBoard>("host", member.rank, member.world_size,
                                       member.connect_store));
  }
  return Complete(&store, plan, member, std::move(engine), std::move(decision->peers),
                  listener.ok() ? *std::move(listener) : ddprun::UniqueFd(), key, std::move(device),
                  LabelOf(member, decision->told), deadline);
}

}  // namespace

absl::StatusOr<FormedGroup> FormGroup(Store& store, const GroupMember& member) {
  // Made while there is memory for it.
  const absl::Status no_memory =
      NoMemory(absl::StrCat("form a group of ", member.world_size, " ranks"));
  try {
    return FormWithMemory(store, member);
  } catch (const std::bad_alloc&) {
    TellFailure(store, member.rank, no_memory);
    TellNoLinks(store, member.rank, no_memory);
    return no_memory;
  }
}

absl::StatusOr<FormedGroup> FormLocalGroup(const GroupMember& member) {
  Capabilities capabilities = member.capabilities;
  std::unique_ptr<Device> device;
  if (WantsGpu(capabilities)) {
    const bool needs_nccl = capabilities.backend == Backend::kNccl;
    capabilities.gpu = ProbeGpu(member.local_rank, needs_nccl, /*has_key=*/false, &device);
  }
  const absl::StatusOr<Plan> plan = MakePlan({capabilities});
  if (!plan.ok()) return plan.status();
  return Complete(nullptr, *plan, member, std::make_unique<LocalEngine>(), MessagePeers(),
                  ddprun::UniqueFd(), nullptr, std::move(device), GroupLabel(),
                  Clock::now() + member.timeout);
}

}  // namespace ddp::internal
