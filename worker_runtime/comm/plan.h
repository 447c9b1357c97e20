// Which backend a group uses, decided once for all its ranks. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_PLAN_H_
#define DDPRUN_WORKER_RUNTIME_COMM_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddp/process_group.h"
#include "worker_runtime/comm/nonce.h"

namespace ddp::internal {

// PyTorch's: asks for gradients in memory that is registered with NCCL. Ours is NCCL's own then.
inline constexpr char kRegisterVar[] = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK";

// Whether one rank can train on a GPU, and with what.
struct GpuCapability {
  // Why not, in words that name what was looked for; empty if it can.
  std::string lack = "it was not asked for";
  std::string uuid;               // of its GPU, or of its slice (MIG) of one
  std::string bus_id;             // "0000:3B:00.0", which slices of one GPU share; empty: not known
  std::string host_id;            // NCCL_HOSTID: ranks that set different ones may share a GPU
  bool may_share = false;         // NCCL_MULTI_RANK_GPU_ENABLE
  int nccl_version = 0;           // 22807 is 2.28.7; 0: NCCL cannot be used
  std::string nccl_lack;          // why not
  bool can_register = false;      // memory with it
  bool can_encrypt = false;       // its links with it, by the round's key; false without one
  bool wants_registered = false;  // kRegisterVar
  friend bool operator==(const GpuCapability&, const GpuCapability&) = default;
};

// What one rank can do and wants.
struct Capabilities {
  Backend backend = Backend::kAuto;
  // Equal on ranks that can share memory: same machine, same network namespace.
  std::string host;
  // This rank's address as the store's host sees it.
  std::string address;
  // Who knows it has read this round's store.
  Nonce nonce{};
  DeviceChoice device = DeviceChoice::kCpu;
  DebugLevel debug_level = DebugLevel::kOff;
  bool has_key = false;  // the round's, with which links are sealed
  GpuCapability gpu{};
  friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

// The decision. A node is a run of consecutive ranks that share memory; with a single node the
// backend is shm, otherwise tcp between the nodes.
struct Plan {
  std::vector<int> node_sizes;
  std::string reason;             // one sentence
  bool is_on_gpus = false;        // as well: the nodes and their backend are for host memory
  bool uses_nccl = false;         // a group of one need not
  bool registers_memory = false;  // every rank wants and can
  bool compares_calls = false;    // with NCCL, as some rank's debug level has it
  bool encrypts_nccl = false;     // its links, by the round's key: every rank can
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Errors: FailedPrecondition naming the rank that limits the group; one without a key among others
// that have it is such a rank.
absl::StatusOr<Plan> MakePlan(const std::vector<Capabilities>& ranks);

// For the store. Decoding what was not encoded here is InvalidArgument.
std::string Encode(const Capabilities& capabilities);
absl::StatusOr<Capabilities> DecodeCapabilities(const std::string& text);
std::string Encode(const Plan& plan);
absl::StatusOr<Plan> DecodePlan(const std::string& text, int world_size);

// A rank's place in a plan.
struct Place {
  int node = 0;
  int node_count = 1;
  std::vector<int> ranks;  // of this node, ascending
  int index = 0;           // of this rank among them
  // First ranks of the neighbouring nodes; -1 at the ends.
  int previous_first = -1;
  int next_first = -1;
  // Each lane is a chain of its own through all nodes: rank `index` of each carries lane `index`.
  int lanes = 1;
};
Place PlaceOf(const Plan& plan, int rank);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_PLAN_H_
