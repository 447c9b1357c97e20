#include "launcher/process/worker_env.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "worker_runtime/counters_page.h"
#include "worker_runtime/env_contract.h"

namespace ddprun::launcher {
namespace {

using ddp::internal::WorkerEnv;

// PyTorch's processes that start others take their signals from it.
constexpr char kSignalsToHandleVar[] = "TORCHELASTIC_SIGNALS_TO_HANDLE";
constexpr size_t kMaxSocketPath = 108;  // sun_path in <sys/un.h>, its end included
constexpr char kVisibleDevicesVar[] = "CUDA_VISIBLE_DEVICES";
constexpr char kHipDevicesVar[] = "HIP_VISIBLE_DEVICES";  // AMD's

std::string_view NameOf(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

// "NAME=value"; null: there is none.
const std::string* Find(const std::vector<std::string>& variables, std::string_view name) {
  const auto found =
      std::find_if(variables.begin(), variables.end(),
                   [&](const std::string& variable) { return NameOf(variable) == name; });
  return found == variables.end() ? nullptr : &*found;
}

bool Has(const std::vector<std::string>& variables, std::string_view name) {
  return Find(variables, name) != nullptr;
}

WorkerEnv Describe(const WorkerEnvInput& input, int local_rank, const std::string& error_file) {
  const rendezvous::Assignment& assignment = input.assignment;
  WorkerEnv env;
  env.rank = assignment.first_rank + local_rank;
  env.world_size = assignment.world_size;
  env.local_rank = local_rank;
  env.local_world_size = input.local_world_size;
  env.group_rank = assignment.node_rank;
  env.group_world_size = assignment.node_count;
  env.role_name = input.role;
  env.role_rank = assignment.role_first_rank + local_rank;
  env.role_world_size = assignment.role_world_size;
  const bool is_elsewhere = !input.store_host.empty();
  env.master_addr = is_elsewhere ? input.store_host : assignment.master_addr;
  env.master_port = is_elsewhere ? input.store_port : assignment.master_port;
  env.own_address = input.own_address;
  env.restart_count = assignment.restart_count;
  env.max_restarts = assignment.max_restarts;
  env.run_id = input.run_id;
  env.use_agent_store = input.use_agent_store;
  env.error_file = error_file;
  env.round = assignment.round.value;
  env.epoch = assignment.epoch.value;
  env.job_mark = input.job_mark;
  env.round_key_fd = input.round_key_fd;
  return env;
}

}  // namespace

std::vector<std::string> BuildWorkerEnv(const std::vector<std::string>& parent,
                                        const WorkerEnvInput& input, int local_rank,
                                        const std::string& error_file) {
  WorkerEnv env = Describe(input, local_rank, error_file);
  const bool is_virtual = !input.virtual_devices.empty();
  if (is_virtual) env.local_rank = 0;
  std::vector<std::pair<std::string, std::string>> own = ddp::internal::FormatWorkerEnv(env);
  own.emplace_back(kSignalsToHandleVar, input.signals_to_handle);
  if (!Has(parent, ddp::internal::kNcclErrorHandlingVar)) {
    own.emplace_back(ddp::internal::kNcclErrorHandlingVar, "1");
  }
  if (!input.timer_file.empty()) {
    own.emplace_back(ddp::internal::kTimerFileVar, input.timer_file);
  }
  if (!input.stop_file.empty()) own.emplace_back(ddp::internal::kStopFileVar, input.stop_file);
  if (!input.progress_file.empty() && env.rank == 0) {
    own.emplace_back(ddp::internal::kProgressFileVar, input.progress_file);
  }
  if (input.counters_fd >= 0) {
    own.emplace_back(ddp::internal::kCountersVar, std::to_string(input.counters_fd));
  }
  if (const std::string socket = WorkerServerSocket(parent, input, local_rank); !socket.empty()) {
    own.emplace_back(kWorkerServerVar, socket);
  }
  if (SetsOmpThreads(parent, input.local_world_size)) {
    own.emplace_back(ddp::internal::kOmpThreadsVar, "1");
  }
  const std::string& visible =
      is_virtual ? input.virtual_devices[static_cast<size_t>(local_rank)] : input.visible_devices;
  if (is_virtual || !visible.empty()) own.emplace_back(kVisibleDevicesVar, visible);
  if (is_virtual && Has(parent, kHipDevicesVar)) own.emplace_back(kHipDevicesVar, visible);
  std::vector<std::string> block;
  block.reserve(parent.size() + own.size());
  for (const std::string& variable : parent) {
    const std::string_view name = NameOf(variable);
    // A mark of another job would let that job's guardian end this worker, and the flag of another
    // job and the places for its progress are not for it.
    const bool is_replaced =
        name == ddp::internal::kJobMarkVar || name == ddp::internal::kStopFileVar ||
        name == ddp::internal::kProgressFileVar || name == ddp::internal::kCountersVar ||
        name == ddp::internal::kNodeAddressVar || name == ddp::internal::kRoundKeyVar ||
        std::any_of(own.begin(), own.end(), [&](const auto& mine) { return mine.first == name; });
    if (!is_replaced) block.push_back(variable);
  }
  for (const auto& [name, value] : own) block.push_back(name + "=" + value);
  return block;
}

std::string WorkerServerSocket(const std::vector<std::string>& parent, const WorkerEnvInput& input,
                               int local_rank) {
  const std::string path = input.server_socket + std::to_string(local_rank);
  const bool is_ours = !input.server_socket.empty() && path.size() < kMaxSocketPath;
  if (is_ours) return path;
  const std::string* own = Find(parent, kWorkerServerVar);
  return own == nullptr ? "" : own->substr(sizeof(kWorkerServerVar));
}

bool SetsOmpThreads(const std::vector<std::string>& parent, int local_world_size) {
  return local_world_size > 1 && !Has(parent, ddp::internal::kOmpThreadsVar);
}

}  // namespace ddprun::launcher
