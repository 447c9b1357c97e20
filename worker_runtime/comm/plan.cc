#include "worker_runtime/comm/plan.h"

#include <algorithm>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker_runtime/gpu/nccl_version.h"

namespace ddp::internal {
namespace {

// Changes with whatever ranks must have alike: the layout of shared memory, the order of steps, the
// messages between nodes.
constexpr char kVersion[] = "ddp9";

// Bounds the connections between two nodes, and what a chunk of staging is divided by.
constexpr int kMaxLanes = 8;

// The first NCCL that lets ranks share a GPU.
constexpr int kFirstNcclThatShares = 23003;

const char* BackendName(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kShm:
      return "shm";
    case Backend::kTcp:
      return "tcp";
    case Backend::kNccl:
      return "nccl";
  }
  return "?";
}

const char* DeviceName(DeviceChoice device) {
  switch (device) {
    case DeviceChoice::kCpu:
      return "cpu";
    case DeviceChoice::kCuda:
      return "cuda";
    case DeviceChoice::kAuto:
      return "auto";
  }
  return "?";
}

// Texts of others may hold anything, the separator included.
std::string Escaped(const std::string& text) { return absl::BytesToHexString(text); }
std::string Unescaped(const std::string& text) { return absl::HexStringToBytes(text); }

absl::Status Garbage(const char* what, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("the store holds no ", what, " of version ",
                                                 kVersion, ": \"", text.substr(0, 100),
                                                 "\" (do all ranks run the same program?)"));
}

std::string Encode(const GpuCapability& gpu) {
  return absl::StrCat(Escaped(gpu.lack), ",", Escaped(gpu.uuid), ",", Escaped(gpu.bus_id), ",",
                      Escaped(gpu.host_id), ",", gpu.may_share, ",", gpu.nccl_version, ",",
                      Escaped(gpu.nccl_lack), ",", gpu.can_register, ",", gpu.wants_registered, ",",
                      gpu.can_encrypt);
}

bool Decode(const std::string& text, GpuCapability* gpu) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  if (parts.size() != 10 || !absl::SimpleAtoi(parts[5], &gpu->nccl_version)) return false;
  gpu->lack = Unescaped(parts[0]);
  gpu->uuid = Unescaped(parts[1]);
  gpu->bus_id = Unescaped(parts[2]);
  gpu->host_id = Unescaped(parts[3]);
  gpu->may_share = parts[4] == "1";
  gpu->nccl_lack = Unescaped(parts[6]);
  gpu->can_register = parts[7] == "1";
  gpu->wants_registered = parts[8] == "1";
  gpu->can_encrypt = parts[9] == "1";
  return true;
}

absl::Status CheckWishes(const std::vector<Capabilities>& ranks) {
  const Capabilities& first = ranks[0];
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].backend != first.backend) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the ranks ask for different backends: rank 0 for ", BackendName(first.backend),
          ", rank ", i, " for ", BackendName(ranks[i].backend)));
    }
    if (ranks[i].device != first.device) {
      return absl::FailedPreconditionError(
          absl::StrCat("the ranks ask for different devices: rank 0 for ", DeviceName(first.device),
                       ", rank ", i, " for ", DeviceName(ranks[i].device)));
    }
  }
  const auto with =
      std::find_if(ranks.begin(), ranks.end(), [](const auto& r) { return r.has_key; });
  const auto without =
      std::find_if(ranks.begin(), ranks.end(), [](const auto& r) { return !r.has_key; });
  if (with != ranks.end() && without != ranks.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", without - ranks.begin(), " has not the key of this round, with which rank ",
        with - ranks.begin(),
        " encrypts: its program was started without DDPRUN_ROUND_KEY_FD, which ddprun gives its "
        "workers where the job has a token"));
  }
  const bool is_for_gpus = first.backend == Backend::kNccl;
  const bool is_for_cpus = first.backend == Backend::kShm || first.backend == Backend::kTcp;
  if ((first.device == DeviceChoice::kCpu && is_for_gpus) ||
      (first.device == DeviceChoice::kCuda && is_for_cpus)) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend ", BackendName(first.backend), " does not go with device ",
                     DeviceName(first.device), ": nccl is for cuda, shm and tcp are for cpu"));
  }
  return absl::OkStatus();
}

// Ranks with host ids of their own in NCCL's eyes may share a GPU: for tests on a machine with one.
bool AreOnOneHost(const GpuCapability& one, const GpuCapability& other) {
  return one.host_id.empty() || one.host_id == other.host_id;
}

// What two ranks have in common when they have the same GPU, or slices of one.
std::vector<std::string> NamesOfGpu(const Capabilities& rank) {
  if (rank.gpu.bus_id.empty()) return {rank.gpu.uuid};
  return {rank.gpu.uuid, absl::StrCat("bus ", rank.host, " ", rank.gpu.bus_id)};
}

// Why NCCL refuses two ranks that have the same GPU, or slices of one, which it takes for the same:
// 2.30.4 and older compare the bus, 2.30.7 the UUID that CUDA 9.2 had for the whole GPU. Empty if
// it does not.
std::string WhyNotShared(const std::vector<Capabilities>& ranks, size_t one, size_t other) {
  const GpuCapability& gpu = ranks[other].gpu;
  const auto unwilling = std::find_if(ranks.begin(), ranks.end(),
                                      [](const Capabilities& rank) { return !rank.gpu.may_share; });
  const bool can_share = gpu.nccl_version >= kFirstNcclThatShares;
  if (can_share && unwilling == ranks.end()) return "";
  if (ranks[one].gpu.uuid == gpu.uuid) {
    return absl::StrCat("ranks ", one, " and ", other, " have the same GPU (", gpu.uuid,
                        "): start one rank per GPU, or let CUDA_VISIBLE_DEVICES show each rank "
                        "its own");
  }
  const std::string slices =
      absl::StrCat("ranks ", one, " and ", other, " have slices (MIG) of one GPU (", gpu.bus_id,
                   "), which NCCL ", NcclVersionText(gpu.nccl_version));
  if (!can_share) {
    return absl::StrCat(slices,
                        " takes for the same: start one rank per physical GPU, or use NCCL 2.30.3 "
                        "or newer with NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank");
  }
  return absl::StrCat(
      slices, " allows only with NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank, and rank ",
      unwilling - ranks.begin(), " does not set it: set it, or start one rank per physical GPU");
}

// Why the ranks cannot train on GPUs; empty if they can.
std::string LackOfGpus(const std::vector<Capabilities>& ranks, bool needs_nccl, bool* are_shared) {
  std::map<std::string, std::vector<size_t>> known;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const GpuCapability& gpu = ranks[i].gpu;
    if (!gpu.lack.empty()) return absl::StrCat("rank ", i, ": ", gpu.lack);
    if (needs_nccl && gpu.nccl_version == 0) return absl::StrCat("rank ", i, ": ", gpu.nccl_lack);
    const int first_version = ranks[0].gpu.nccl_version;
    if (needs_nccl && gpu.nccl_version != first_version) {
      return absl::StrCat("rank 0 has NCCL ", NcclVersionText(first_version), ", rank ", i, " has ",
                          NcclVersionText(gpu.nccl_version),
                          ": NCCL forms groups of one version only");
    }
    if (needs_nccl && gpu.can_encrypt != ranks[0].gpu.can_encrypt) {
      const size_t able = gpu.can_encrypt ? i : 0;
      return absl::StrCat("rank ", able, "'s NCCL ", NcclVersionText(first_version),
                          " was built with TLS and encrypts by the key of the round, rank ",
                          i - able, "'s was built without it: use one build of NCCL everywhere");
    }
    for (const std::string& name : NamesOfGpu(ranks[i])) {
      for (size_t other : known[name]) {
        if (!AreOnOneHost(ranks[other].gpu, gpu)) continue;
        if (std::string why = WhyNotShared(ranks, other, i); !why.empty()) return why;
        *are_shared = true;
      }
      known[name].push_back(i);
    }
  }
  return "";
}

absl::Status DecideOnGpus(const std::vector<Capabilities>& ranks, Plan* plan) {
  const Capabilities& first = ranks[0];
  if (first.device == DeviceChoice::kCpu) return absl::OkStatus();
  if (first.backend == Backend::kShm || first.backend == Backend::kTcp) return absl::OkStatus();
  plan->uses_nccl = ranks.size() > 1 || first.backend == Backend::kNccl;
  bool are_shared = false;
  const std::string lack = LackOfGpus(ranks, plan->uses_nccl, &are_shared);
  if (!lack.empty()) {
    plan->uses_nccl = false;
    if (first.device == DeviceChoice::kCuda || first.backend == Backend::kNccl) {
      const bool is_by_device = first.device == DeviceChoice::kCuda;
      return absl::FailedPreconditionError(
          absl::StrCat(is_by_device ? "device cuda: " : "backend nccl: ", lack));
    }
    plan->reason = absl::StrCat(plan->reason, "; no GPUs (", lack, ")");
    return absl::OkStatus();
  }
  plan->is_on_gpus = true;
  if (!plan->uses_nccl) {
    plan->reason = "cuda: a group of one";
    return absl::OkStatus();
  }
  const auto limit = std::find_if(ranks.begin(), ranks.end(), [](const Capabilities& rank) {
    return !rank.gpu.can_register || !rank.gpu.wants_registered;
  });
  plan->registers_memory = limit == ranks.end();
  plan->encrypts_nccl = first.gpu.can_encrypt;
  plan->compares_calls = std::any_of(ranks.begin(), ranks.end(), [](const Capabilities& rank) {
    return rank.debug_level == DebugLevel::kDetail;
  });
  plan->reason = absl::StrCat(
      "cuda, nccl ", NcclVersionText(first.gpu.nccl_version), ": ",
      ranks.size() == 1
          ? "rank 0 has a GPU"
          : absl::StrCat("each of ", ranks.size(), " ranks has a GPU ",
                         are_shared ? "or shares one (NCCL_MULTI_RANK_GPU_ENABLE)" : "of its own"));
  if (first.has_key) {
    absl::StrAppend(&plan->reason, plan->encrypts_nccl ? "; what NCCL sends over TCP is encrypted"
                                                       : "; what NCCL sends is not encrypted");
  }
  const bool is_wanted = std::any_of(ranks.begin(), ranks.end(), [](const Capabilities& rank) {
    return rank.gpu.wants_registered;
  });
  if (is_wanted && !plan->registers_memory) {
    absl::StrAppend(&plan->reason, "; gradients in plain memory, as rank ", limit - ranks.begin(),
                    limit->gpu.wants_registered
                        ? "'s NCCL cannot register it (2.19 can)"
                        : absl::StrCat(" does not ask for registered memory (", kRegisterVar, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const std::vector<Capabilities>& ranks) {
  Plan plan;
  if (absl::Status status = CheckWishes(ranks); !status.ok()) return status;
  size_t first_elsewhere = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool joins_previous = i > 0 && ranks[i].host == ranks[i - 1].host;
    if (joins_previous && ranks[i].backend != Backend::kTcp) {
      ++plan.node_sizes.back();
    } else {
      plan.node_sizes.push_back(1);
    }
    if (first_elsewhere == 0 && ranks[i].host != ranks[0].host) first_elsewhere = i;
  }
  if (ranks[0].backend == Backend::kTcp) {
    plan.reason = "tcp between all ranks, as asked for";
  } else if (plan.node_sizes.size() == 1) {
    plan.reason = "shm: all ranks share a host";
  } else {
    plan.reason = absl::StrCat("tcp between ", plan.node_sizes.size(), " nodes: rank ",
                               first_elsewhere, " is not on rank 0's host");
    if (ranks[0].backend == Backend::kShm) {
      return absl::FailedPreconditionError(
          absl::StrCat("backend shm needs all ranks on one host: rank ", first_elsewhere,
                       " is not on rank 0's"));
    }
  }
  if (ranks.size() == 1) plan.reason = "local: a group of one";
  if (absl::Status status = DecideOnGpus(ranks, &plan); !status.ok()) return status;
  return plan;
}

std::string Encode(const Capabilities& capabilities) {
  return absl::StrCat(kVersion, "|", BackendName(capabilities.backend), "|", capabilities.host, "|",
                      capabilities.address, "|", NonceText(capabilities.nonce), "|",
                      capabilities.debug_level == DebugLevel::kDetail ? "detail" : "off", "|",
                      DeviceName(capabilities.device), "|",
                      capabilities.has_key ? "sealed" : "plain", "|", Encode(capabilities.gpu));
}

absl::StatusOr<Capabilities> DecodeCapabilities(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '|');
  if (parts.size() != 9 || parts[0] != kVersion) return Garbage("capabilities", text);
  Capabilities capabilities;
  capabilities.host = parts[2];
  capabilities.address = parts[3];
  bool is_valid = ParseNonce(parts[4], &capabilities.nonce) && Decode(parts[8], &capabilities.gpu);
  if (parts[5] == "detail") capabilities.debug_level = DebugLevel::kDetail;
  is_valid = is_valid && (parts[5] == "detail" || parts[5] == "off");
  capabilities.has_key = parts[7] == "sealed";
  is_valid = is_valid && (parts[7] == "sealed" || parts[7] == "plain");
  bool is_known = false;
  for (Backend backend : {Backend::kAuto, Backend::kShm, Backend::kTcp, Backend::kNccl}) {
    if (parts[1] != BackendName(backend)) continue;
    capabilities.backend = backend;
    is_known = true;
  }
  is_valid = is_valid && is_known;
  is_known = false;
  for (DeviceChoice device : {DeviceChoice::kCpu, DeviceChoice::kCuda, DeviceChoice::kAuto}) {
    if (parts[6] != DeviceName(device)) continue;
    capabilities.device = device;
    is_known = true;
  }
  if (!is_valid || !is_known) return Garbage("capabilities", text);
  return capabilities;
}

std::string Encode(const Plan& plan) {
  return absl::StrCat(kVersion, "|", absl::StrJoin(plan.node_sizes, ","), "|", plan.is_on_gpus,
                      plan.uses_nccl, plan.registers_memory, plan.compares_calls,
                      plan.encrypts_nccl, "|", plan.reason);
}

absl::StatusOr<Plan> DecodePlan(const std::string& text, int world_size) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('|', 3));
  if (parts.size() != 4 || parts[0] != kVersion || parts[2].size() != 5) {
    return Garbage("plan", text);
  }
  Plan plan;
  plan.is_on_gpus = parts[2][0] == '1';
  plan.uses_nccl = parts[2][1] == '1';
  plan.registers_memory = parts[2][2] == '1';
  plan.compares_calls = parts[2][3] == '1';
  plan.encrypts_nccl = parts[2][4] == '1';
  plan.reason = parts[3];
  int64_t total = 0;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(parts[1], ','))) {
    int size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1) return Garbage("plan", text);
    plan.node_sizes.push_back(size);
    total += size;
  }
  if (total != world_size) return Garbage("plan", text);
  return plan;
}

Place PlaceOf(const Plan& plan, int rank) {
  Place place;
  place.node_count = static_cast<int>(plan.node_sizes.size());
  place.lanes =
      std::min(kMaxLanes, *std::min_element(plan.node_sizes.begin(), plan.node_sizes.end()));
  int first = 0;
  for (int node = 0; node < place.node_count; ++node) {
    const int size = plan.node_sizes[node];
    if (rank < first + size) {
      place.node = node;
      place.index = rank - first;
      for (int i = 0; i < size; ++i) place.ranks.push_back(first + i);
      if (node + 1 < place.node_count) place.next_first = first + size;
      break;
    }
    place.previous_first = first;
    first += size;
  }
  return place;
}

}  // namespace ddp::internal
