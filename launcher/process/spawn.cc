#include "launcher/process/spawn.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>

#include "launcher/process/job_cgroup.h"
#include "process/clone.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// As sched_setaffinity takes it. REQUIRES: no number is negative.
std::vector<cpu_set_t> CpuMask(const std::set<int>& cpus) {
  if (cpus.empty()) return {};
  DDP_CHECK(*cpus.begin() >= 0);
  std::vector<cpu_set_t> mask(static_cast<size_t>(*cpus.rbegin()) / CPU_SETSIZE + 1);
  for (const int cpu : cpus) {
    CPU_SET_S(static_cast<size_t>(cpu), mask.size() * sizeof(cpu_set_t), mask.data());
  }
  return mask;
}

bool HasCloseRange() {
  // An empty range asks the question without closing anything. Without flags, as it is used: the
  // one for close-on-exec came later (5.11).
  static const bool answer = syscall(SYS_close_range, ~0U, ~0U, 0) == 0;
  return answer;
}

int HighestOpenFd() {
  const std::optional<std::vector<int>> open = OpenDescriptors();
  return open && !open->empty() ? *std::max_element(open->begin(), open->end()) : 65535;
}

// The child's pid, or -errno.
pid_t Clone(int cgroup, char* stack, ChildPlan* plan) {
  const AllSignalsBlocked blocked;
  if (cgroup >= 0) {
    const pid_t pid = CloneIntoCgroup(cgroup, RunChild, stack, kChildStackBytes, plan);
    if (pid >= 0) return pid;
  }
  // Our memory is not copied. A fork would need no stacks and no care for what is shared, but it
  // copies page tables, and each page written meanwhile: on two busy cores 64 x `true` took 113 ms
  // of time and 131 of processors with it, in place of 55 and 71 (best of 40 in turns), and one
  // clone of an agent of 200 MiB 9 ms instead of 0.02. CLONE_VFORK copies nothing either, but we
  // would sleep until the exec: 0.5 ms for each worker, and as long as the file system of the
  // program gives no answer.
  return CloneSharingMemory(RunChild, plan, stack, 0);
}

}  // namespace

SpawnedChild::SpawnedChild(SpawnRequest request, const ProcessBaseline& baseline, int error_pipe)
    : request_(std::move(request)),
      argv_(Pointers(request_.argv)),
      envp_(Pointers(request_.env)),
      cpu_mask_(CpuMask(request_.cpus)),
      // What new[] gives is aligned to 16 bytes.
      stack_(std::make_unique_for_overwrite<char[]>(kChildStackBytes)) {
  DDP_CHECK(!request_.argv.empty());
  plan_ = {.executable = request_.executable.c_str(),
           .argv = argv_.data(),
           .envp = envp_.data(),
           .stdio = {request_.stdin_fd, request_.stdout_fd, request_.stderr_fd},
           .counters = request_.counters_fd,
           .round_key = request_.round_key_fd,
           .error_pipe = error_pipe,
           .highest_fd = HasCloseRange() ? -1 : HighestOpenFd(),
           .parent = getpid(),
           .baseline = baseline,
           .cpu_mask = cpu_mask_.data(),
           .cpu_mask_bytes = cpu_mask_.size() * sizeof(cpu_set_t)};
  if (baseline.oom_scores) {
    plan_.oom_score_adj_size = static_cast<size_t>(std::snprintf(
        plan_.oom_score_adj, sizeof(plan_.oom_score_adj), "%d", baseline.oom_scores->workers));
  }
  pid_ = Clone(request_.cgroup, stack_.get(), &plan_);
  if (pid_ < 0) error_ = -std::exchange(pid_, -1);
}

}  // namespace ddprun::launcher
