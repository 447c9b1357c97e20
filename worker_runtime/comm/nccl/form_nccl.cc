#include "worker_runtime/comm/nccl/form_nccl.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/nccl/nccl_environment.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// How often a wait for NCCL looks whether another rank failed, and how long an abort may take.
constexpr Milliseconds kLook(20);
constexpr std::chrono::seconds kAbortPatience(2);

constexpr char kIdKey[] = "nccl/id";
constexpr char kFailedPrefix[] = "failed: ";

std::string JoiningKey(int rank) { return absl::StrCat("nccl/joining/", rank); }

Milliseconds Until(Clock::time_point deadline) {
  return std::max(Milliseconds(1),
                  std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
}

// What rank 0 makes and all use.
struct Ticket {
  NcclUniqueId id{};
  uint16_t ras_port = 0;
};

absl::StatusOr<Ticket> MakeTicket(const LoadedNccl& nccl, const NcclMember& member) {
  Ticket ticket;
  ticket.ras_port = FreeLoopbackPort();
  // The id holds this rank's address, on the interface that is chosen now.
  SetNcclEnvironment(member.address, ticket.ras_port);
  const NcclResult result = nccl.api.ncclGetUniqueId(&ticket.id);
  if (result != kNcclSuccess) return NcclStatus(nccl.api, "ncclGetUniqueId", result, nullptr);
  return ticket;
}

// The ticket is a secret: it is in no message.
absl::StatusOr<Ticket> ShareTicket(Store* store, const LoadedNccl& nccl, const NcclMember& member,
                                   int rank) {
  if (rank == 0) {
    absl::StatusOr<Ticket> ticket = MakeTicket(nccl, member);
    if (store == nullptr) return ticket;
    const std::string text =
        ticket.ok() ? std::string(reinterpret_cast<const char*>(&*ticket), sizeof(Ticket))
                    : absl::StrCat(kFailedPrefix, std::string(ticket.status().message()));
    absl::Status told = store->Set(kIdKey, text);
    if (ticket.ok() && !told.ok()) return told;
    return ticket;
  }
  const absl::StatusOr<std::string> text = store->Get(kIdKey, Until(member.deadline));
  if (!text.ok()) return text.status();
  Ticket ticket;
  if (text->size() != sizeof(ticket)) {
    return absl::UnavailableError(absl::StrCat("rank 0: ", text->substr(0, 1000)));
  }
  std::memcpy(&ticket, text->data(), sizeof(ticket));
  SetNcclEnvironment(member.address, ticket.ras_port);
  return ticket;
}

std::vector<int> NotJoining(Store& store, int world_size) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    const absl::StatusOr<bool> has = store.Check({JoiningKey(rank)});
    if (has.ok() && !*has) missing.push_back(rank);
  }
  return missing;
}

absl::Status Explained(const absl::Status& status, Store* store, const NcclMember& member,
                       int world_size) {
  std::string why(status.message());
  if (absl::IsDeadlineExceeded(status)) {
    const std::vector<int> missing =
        store == nullptr ? std::vector<int>() : NotJoining(*store, world_size);
    why = absl::StrCat("timed out after ", NameDuration(member.timeout), ": ",
                       missing.empty() ? "all ranks called it; NCCL or the network hangs "
                                         "(NCCL_DEBUG=INFO tells more)"
                                       : absl::StrCat(NameRanks(missing), " did not come"));
  }
  return absl::Status(status.code(),
                      absl::StrCat("join NCCL's group of ", world_size, " ranks: ", why));
}

// NCCL's start may hang inside a call that promised not to wait. Then the thread is left to itself,
// and the error that says so should end the process.
absl::StatusOr<std::unique_ptr<NcclCommunication>> JoinOnThread(const LoadedNccl& nccl,
                                                                const NcclUniqueId& id,
                                                                const Device& device,
                                                                const GroupCommunicator& host,
                                                                Clock::time_point deadline) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    absl::Status interruption;  // by the other side
    std::optional<absl::StatusOr<std::unique_ptr<NcclCommunication>>> result;
  };
  auto shared = std::make_shared<Shared>();
  std::thread([shared, &nccl, id, &device, rank = host.rank(), size = host.world_size(), deadline] {
    const auto interrupted = [&shared] {
      const std::lock_guard lock(shared->mutex);
      return shared->interruption;
    };
    std::optional<absl::StatusOr<std::unique_ptr<NcclCommunication>>> joined;
    if (const absl::Status current = device.MakeCurrent(); !current.ok()) {
      joined = current;
    } else {
      joined = NcclCommunication::Join(nccl, id, rank, size, deadline, interrupted);
    }
    const std::lock_guard lock(shared->mutex);
    shared->result = std::move(joined);
    shared->changed.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  while (!shared->result.has_value()) {
    shared->changed.wait_for(lock, kLook);
    if (shared->interruption.ok()) shared->interruption = host.error();
    if (Clock::now() > deadline + kAbortPatience) {
      return absl::DeadlineExceededError("ncclCommInitRankConfig did not return");
    }
  }
  return *std::move(shared->result);
}

absl::StatusOr<std::unique_ptr<NcclCommunication>> JoinNccl(Store* store, const NcclMember& member,
                                                            std::unique_ptr<Device>& device,
                                                            const GroupCommunicator& host) {
  const int rank = host.rank(), world_size = host.world_size();
  const LoadedNccl& nccl = *Nccl();
  const absl::StatusOr<Ticket> ticket = ShareTicket(store, nccl, member, rank);
  if (!ticket.ok()) return Explained(ticket.status(), store, member, world_size);
  if (store != nullptr) {
    if (absl::Status told = store->Set(JoiningKey(rank), "1"); !told.ok()) return told;
  }
  absl::StatusOr<std::unique_ptr<NcclCommunication>> joined =
      JoinOnThread(nccl, ticket->id, *device, host, member.deadline);
  if (joined.ok()) return joined;
  (void)device.release();  // a thread that hangs may still use it
  return Explained(joined.status(), store, member, world_size);
}

}  // namespace

GpuCapability ProbeGpu(int local_rank, bool needs_nccl, std::unique_ptr<Device>* device) {
  GpuCapability gpu;
  absl::StatusOr<std::unique_ptr<Device>> opened = OpenGpuOf(local_rank);
  if (!opened.ok()) {
    gpu.lack = std::string(opened.status().message());
    return gpu;
  }
  gpu.lack.clear();
  gpu.uuid = (*opened)->uuid();
  *device = *std::move(opened);
  if (const char* host_id = std::getenv("NCCL_HOSTID")) gpu.host_id = host_id;
  if (!needs_nccl) return gpu;
  absl::Status status = CheckNcclEnvironment();
  if (status.ok()) status = Nccl().status();
  if (!status.ok()) {
    gpu.nccl_lack = std::string(status.message());
    return gpu;
  }
  gpu.nccl_version = Nccl()->version;
  gpu.can_register = Nccl()->can_register();
  return gpu;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> FormNccl(
    Store* store, const Plan& plan, const NcclMember& member, std::unique_ptr<Device> device,
    std::unique_ptr<GroupCommunicator> host) {
  std::unique_ptr<NcclCommunication> communication;
  if (plan.uses_nccl) {
    auto joined = JoinNccl(store, member, device, *host);
    if (!joined.ok()) {
      // The others wait in NCCL for this rank.
      host->Abort(std::string(joined.status().message()));
      return joined.status();
    }
    communication = *std::move(joined);
  }
  std::unique_ptr<FailureBoard> board;
  if (host->world_size() > 1) {
    board = std::make_unique<FailureBoard>("nccl", host->rank(), host->world_size(),
                                           member.connect_store);
  }
  return NcclCommunicator::Create(
      std::move(device), std::move(communication), std::move(host), std::move(board),
      {.timeout = member.timeout, .can_register = plan.can_register, .on_hopeless = &EndProcess});
}

}  // namespace ddp::internal
