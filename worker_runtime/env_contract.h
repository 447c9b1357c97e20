// The environment between an agent and its workers: the one definition both sides use. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_ENV_CONTRACT_H_
#define DDPRUN_WORKER_RUNTIME_ENV_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ddp::internal {

// The names. Those without DDPRUN_ are torchrun's, with torchrun's meaning.
inline constexpr char kRankVar[] = "RANK";
inline constexpr char kWorldSizeVar[] = "WORLD_SIZE";
inline constexpr char kLocalRankVar[] = "LOCAL_RANK";
inline constexpr char kLocalWorldSizeVar[] = "LOCAL_WORLD_SIZE";
inline constexpr char kGroupRankVar[] = "GROUP_RANK";
inline constexpr char kGroupWorldSizeVar[] = "GROUP_WORLD_SIZE";
inline constexpr char kRoleNameVar[] = "ROLE_NAME";
inline constexpr char kRoleRankVar[] = "ROLE_RANK";
inline constexpr char kRoleWorldSizeVar[] = "ROLE_WORLD_SIZE";
inline constexpr char kMasterAddrVar[] = "MASTER_ADDR";
inline constexpr char kMasterPortVar[] = "MASTER_PORT";
inline constexpr char kRestartCountVar[] = "TORCHELASTIC_RESTART_COUNT";
inline constexpr char kMaxRestartsVar[] = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr char kRunIdVar[] = "TORCHELASTIC_RUN_ID";
inline constexpr char kUseAgentStoreVar[] = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr char kErrorFileVar[] = "TORCHELASTIC_ERROR_FILE";
inline constexpr char kTimerFileVar[] = "TORCHELASTIC_TIMER_FILE";
inline constexpr char kNcclErrorHandlingVar[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr char kOmpThreadsVar[] = "OMP_NUM_THREADS";
inline constexpr char kRoundVar[] = "DDPRUN_ROUND";
inline constexpr char kEpochVar[] = "DDPRUN_EPOCH";
inline constexpr char kJobMarkVar[] = "DDPRUN_JOB_MARK";
// Where MASTER_ADDR is the agent's own loopback: by what other nodes reach this one.
inline constexpr char kNodeAddressVar[] = "DDPRUN_NODE_ADDR";
// Where nodes prove to each other that they are of one job: the number of the descriptor in which
// the round's key stands (round_key.h).
inline constexpr char kRoundKeyVar[] = "DDPRUN_ROUND_KEY_FD";
inline constexpr char kStopFileVar[] = "DDPRUN_STOP_FILE";
inline constexpr char kProgressFileVar[] = "DDPRUN_PROGRESS_FILE";  // rank 0 alone has it

// One worker's place in the job, as its agent tells it. The defaults are a group of one.
struct WorkerEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int group_rank = 0;  // of the node among the round's nodes
  int group_world_size = 1;
  std::string role_name = "default";
  int role_rank = 0;
  int role_world_size = 1;
  std::string master_addr;  // where the store listens; empty only in a group of one
  uint16_t master_port = 0;
  std::string own_address;  // by which other nodes reach this one; "": master_addr tells
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id;
  bool use_agent_store = false;
  std::string error_file;  // "": none
  int round_key_fd = -1;   // -1: there is no key
  // Absent under the real torchrun.
  std::optional<uint64_t> round;
  std::optional<uint64_t> epoch;
  // The agent's own mark on every process of its job; "": not written.
  std::string job_mark;

  friend bool operator==(const WorkerEnv&, const WorkerEnv&) = default;
};

// getenv() of whatever environment: the value, or null where the variable is not set.
using EnvLookup = std::function<const char*(const char* name)>;

// Reads a worker's environment. nullopt: RANK is not set, so no launcher started this process.
// Needs RANK and WORLD_SIZE, and with a world size above 1 MASTER_ADDR and MASTER_PORT; the rest
// has torchrun's defaults. InvalidArgument names the variable, its value and what is accepted.
absl::StatusOr<std::optional<WorkerEnv>> ParseWorkerEnv(const EnvLookup& lookup);

// The prefix of the keys of a round's ranks in the store.
std::string KeysOfRound(uint64_t epoch, uint64_t round);

// The variables to set for a worker, names with values, in a fixed order. ParseWorkerEnv() of them
// gives `env` back.
std::vector<std::pair<std::string, std::string>> FormatWorkerEnv(const WorkerEnv& env);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_ENV_CONTRACT_H_
