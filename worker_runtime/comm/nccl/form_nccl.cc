#include "worker_runtime/comm/nccl/form_nccl.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/nccl/nccl_encryption.h"
#include "worker_runtime/comm/nccl/nccl_environment.h"
#include "worker_runtime/comm/nccl/side_thread.h"
#include "worker_runtime/comm/survey.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// How often a wait for NCCL looks whether another rank has failed.
constexpr Milliseconds kLook(20);
// How long NCCL's start may go on once one has: it may say why, in better words.
constexpr std::chrono::seconds kAfterFailure(2);

constexpr char kIdKey[] = "nccl/id";
constexpr char kSurveyorKey[] = "nccl/surveyor";
constexpr char kNotJoiningKey[] = "nccl/not_joining";
constexpr char kFailedPrefix[] = "failed: ";

std::string JoiningKey(int rank) { return absl::StrCat("nccl/joining/", rank); }

Milliseconds Until(Clock::time_point deadline) {
  return std::max(Milliseconds(1),
                  std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()));
}

// Of rank 0, for all. It is a secret: it is in no message.
absl::StatusOr<NcclUniqueId> ShareId(Store* store, const LoadedNccl& nccl, const NcclMember& member,
                                     int rank) {
  NcclUniqueId id{};
  if (rank == 0) {
    absl::Status status =
        NcclStatus(nccl.api, "ncclGetUniqueId", nccl.api.ncclGetUniqueId(&id), nullptr);
    const std::string text = status.ok()
                                 ? std::string(reinterpret_cast<const char*>(&id), sizeof(id))
                                 : absl::StrCat(kFailedPrefix, std::string(status.message()));
    if (store != nullptr) status.Update(store->Set(kIdKey, text));
    if (!status.ok()) return status;
    return id;
  }
  const absl::StatusOr<std::string> text = store->Get(kIdKey, Until(member.deadline));
  if (!text.ok()) return text.status();
  if (text->size() != sizeof(id)) {
    return absl::UnavailableError(absl::StrCat("rank 0: ", text->substr(0, 1000)));
  }
  std::memcpy(&id, text->data(), sizeof(id));
  return id;
}

// Who did not come, in words. One asks the store for all, which time out at one moment: the first.
std::string WhoDidNotCome(Store& store, const HostCommunicator& host) {
  const std::string me = absl::StrCat(host.rank());
  const auto surveyor = store.CompareSet(kSurveyorKey, "", me);
  if (!surveyor.ok()) return "who did not come is not known, since the store cannot be asked";
  if (*surveyor != me) {
    const auto found = store.Get(kNotJoiningKey, kVerdictPatience);
    if (found.ok()) return found->substr(0, 1000);
    return absl::StrCat("who did not come is not known, since rank ", surveyor->substr(0, 20),
                        ", which asks for all, does not answer");
  }
  Survey survey{.missing = {}, .asked = 0, .world_size = host.world_size()};
  const auto answers = AskRanks(store, survey.world_size, JoiningKey, Clock::now() + kSurveyTime);
  for (const auto& answer : answers) {
    if (!answer.has_value()) survey.missing.push_back(survey.asked);
    ++survey.asked;
  }
  const std::string words =
      survey.missing.empty()
          ? absl::StrCat("all ranks called it", NameExtent(survey),
                         "; NCCL or the network hangs (NCCL_DEBUG=INFO tells more)")
          : absl::StrCat(NameRanks(survey.missing), " did not come", NameExtent(survey));
  (void)store.Set(kNotJoiningKey, words);
  return words;
}

absl::Status Explained(const absl::Status& status, Store* store, const NcclMember& member,
                       const HostCommunicator& host) {
  std::string why(status.message());
  if (absl::IsDeadlineExceeded(status)) {
    why = absl::StrCat("timed out after ", NameDuration(member.timeout), ": ",
                       store == nullptr ? "NCCL hangs" : WhoDidNotCome(*store, host));
  }
  return absl::Status(status.code(),
                      absl::StrCat("join NCCL's group of ", host.world_size(), " ranks: ", why,
                                   member.key == nullptr ? "" : AdviceOnEncryption(why)));
}

// NCCL's start has no deadline of its own: it is on a thread, which is left to itself where it
// hangs, and the error that says so should end the process.
absl::StatusOr<std::unique_ptr<NcclCommunication>> JoinOnThread(const LoadedNccl& nccl,
                                                                const NcclUniqueId& id,
                                                                const Device& device,
                                                                const HostCommunicator& host,
                                                                Clock::time_point deadline) {
  using Joined = absl::StatusOr<std::unique_ptr<NcclCommunication>>;
  auto joined = OnThread([&nccl, id, &device, rank = host.rank(), size = host.world_size()] {
    const absl::Status current = device.MakeCurrent();
    return current.ok() ? NcclCommunication::Join(nccl, id, rank, size) : Joined(current);
  });
  absl::Status why = absl::DeadlineExceededError("ncclCommInitRankConfig did not return");
  bool has_peer_failed = false;
  while (joined.wait_for(kLook) != std::future_status::ready) {
    const Clock::time_point now = Clock::now();
    if (now > deadline) return why;
    if (has_peer_failed || host.error().ok()) continue;
    has_peer_failed = true;
    why = host.error();
    deadline = std::min(deadline, now + kAfterFailure);
  }
  return joined.get();
}

absl::StatusOr<std::unique_ptr<NcclCommunication>> JoinNccl(Store* store, const NcclMember& member,
                                                            std::unique_ptr<Device>& device,
                                                            const HostCommunicator& host) {
  const LoadedNccl& nccl = *Nccl();
  SetNcclEnvironment();
  if (member.key != nullptr) {
    if (absl::Status status = EncryptNccl(nccl, *member.key); !status.ok()) return status;
  }
  const absl::StatusOr<NcclUniqueId> id = ShareId(store, nccl, member, host.rank());
  if (!id.ok()) return Explained(id.status(), store, member, host);
  if (store != nullptr) {
    if (absl::Status told = store->Set(JoiningKey(host.rank()), "1"); !told.ok()) return told;
  }
  absl::StatusOr<std::unique_ptr<NcclCommunication>> joined =
      JoinOnThread(nccl, *id, *device, host, member.deadline);
  if (joined.ok()) return joined;
  (void)device.release();  // a thread that hangs may still use it
  return Explained(joined.status(), store, member, host);
}

// Empty where the driver does not say: it is nobody else's then.
std::string BusIdOf(const Device& device) {
  const CudaApi& api = device.api();
  CudaDevice handle = 0;
  char bus_id[64] = "";
  const bool is_known = api.cuDeviceGet(&handle, device.ordinal()) == kCudaSuccess &&
                        api.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), handle) == kCudaSuccess;
  return is_known ? bus_id : "";
}

// As NCCL reads its numbers: anything but 0 is yes.
bool IsEnabled(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strtoll(text, nullptr, 0) != 0;
}

// The words that PyTorch takes for true. All others are false here; PyTorch knows some of them and
// throws at the rest.
bool IsTrue(const char* variable) {
  const char* text = std::getenv(variable);
  const std::string word = absl::AsciiStrToLower(text == nullptr ? "" : text);
  return word == "1" || word == "y" || word == "yes" || word == "t" || word == "true";
}

}  // namespace

GpuCapability ProbeGpu(int local_rank, bool needs_nccl, bool has_key,
                       std::unique_ptr<Device>* device) {
  GpuCapability gpu;
  absl::StatusOr<std::unique_ptr<Device>> opened = OpenGpuOf(local_rank);
  if (!opened.ok()) {
    gpu.lack = std::string(opened.status().message());
    return gpu;
  }
  gpu.lack.clear();
  gpu.uuid = (*opened)->uuid();
  gpu.bus_id = BusIdOf(**opened);
  gpu.may_share = IsEnabled("NCCL_MULTI_RANK_GPU_ENABLE");
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
  gpu.can_encrypt = has_key && WhyNcclIsPlain(*Nccl()).empty();
  gpu.wants_registered = IsTrue(kRegisterVar);
  return gpu;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> FormNccl(Store* store, const Plan& plan,
                                                           const NcclMember& member,
                                                           std::unique_ptr<Device> device,
                                                           std::unique_ptr<HostCommunicator> host) {
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
  return NcclCommunicator::Create(std::move(device), std::move(communication), std::move(host),
                                  std::move(board),
                                  {.timeout = member.timeout,
                                   .label = member.label,
                                   .registers_memory = plan.registers_memory,
                                   .compares_calls = plan.compares_calls,
                                   .is_high_priority = IsTrue("TORCH_NCCL_HIGH_PRIORITY"),
                                   .on_hopeless = &EndProcess});
}

}  // namespace ddp::internal
