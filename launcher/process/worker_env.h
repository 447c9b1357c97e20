// A worker's environment: the agent's own, with the worker's place in the job on top. [pure]
#ifndef DDPRUN_LAUNCHER_PROCESS_WORKER_ENV_H_
#define DDPRUN_LAUNCHER_PROCESS_WORKER_ENV_H_

#include <string>
#include <vector>

#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// Names the socket of a worker's server: torch.distributed.elastic.control_plane.worker_main.
inline constexpr char kWorkerServerVar[] = "TORCH_WORKER_SERVER_SOCKET";

// What all workers of the node share in one round.
struct WorkerEnvInput {
  rendezvous::Assignment assignment;
  // Where this node's workers find the round's store; "": where the assignment says.
  std::string store_host;
  uint16_t store_port = 0;
  std::string own_address;  // by which other nodes reach this one; "": the store's host tells
  int local_world_size = 1;
  std::string run_id;
  std::string role = "default";
  std::string job_mark;           // "": not written
  std::string signals_to_handle;  // the text of the option
  std::string timer_file;         // the FIFO for timers; "": as in the parent
  std::string stop_file;          // the flag of --preempt_signal (stop_file.h); "": none
  std::string progress_file;      // where rank 0 says how far it is (likewise); "": nobody asks
  // Where PyTorch's worker server puts its socket: a path to which the local rank is added (at most
  // 107 bytes then); "": as in the parent.
  std::string server_socket;
  int counters_fd = -1;   // of the page in which a worker tells of itself; -1: there is none
  int round_key_fd = -1;  // in which the round's key stands; -1: there is none
  bool use_agent_store = true;
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES of all workers; "": as in the parent
  // The GPU of each worker by local rank: it sees that one alone, and LOCAL_RANK is 0. Empty:
  // neither.
  std::vector<std::string> virtual_devices;
};

// The block for the worker of `local_rank`: "NAME=value" strings. `parent` is the agent's own
// environment; of its variables those that describe another worker are replaced, all else stays
// in its order. TORCHELASTIC_SIGNALS_TO_HANDLE is set as torchrun does;
// TORCH_NCCL_ASYNC_ERROR_HANDLING and OMP_NUM_THREADS (with several workers) become 1 where the
// parent has none. `error_file` may be empty: no file.
std::vector<std::string> BuildWorkerEnv(const std::vector<std::string>& parent,
                                        const WorkerEnvInput& input, int local_rank,
                                        const std::string& error_file);

// TORCH_WORKER_SERVER_SOCKET of the worker; "": it has none.
std::string WorkerServerSocket(const std::vector<std::string>& parent, const WorkerEnvInput& input,
                               int local_rank);

// True where BuildWorkerEnv adds OMP_NUM_THREADS=1: the user is told once.
bool SetsOmpThreads(const std::vector<std::string>& parent, int local_world_size);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_WORKER_ENV_H_
