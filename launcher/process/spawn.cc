#include "launcher/process/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/process/child_setup.h"
#include "launcher/process/clone_into_cgroup.h"
#include "launcher/process/raw_syscall.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"

#if defined(__SANITIZE_THREAD__)
// The other name of clone(2)'s wrapper in glibc. The thread sanitizer replaces the usual one and
// takes every child for a fork: then it lets the parent, whose memory it is, start no thread any
// more ("starting new threads after multi-threaded fork") and stops looking at this one.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);
constexpr auto kClone = __clone;
#else
constexpr auto kClone = clone;
#endif

namespace ddprun::launcher {
namespace {

using boost::asio::posix::stream_descriptor;

// The child runs a dozen system calls and no library code; its deepest frame is below 1 KiB.
constexpr size_t kChildStackBytes = 32 * 1024;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// As sched_setaffinity takes it. REQUIRES: no number is negative.
std::vector<unsigned long> CpuMask(const std::set<int>& cpus) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    DDP_CHECK(cpu >= 0);
    const auto bit = static_cast<size_t>(cpu);
    mask.resize(std::max(mask.size(), bit / kBits + 1));
    mask[bit / kBits] |= 1UL << (bit % kBits);
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
  int highest = 2;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 65535;
  while (const dirent* entry = readdir(directory)) {
    highest = std::max(highest, std::atoi(entry->d_name));
  }
  closedir(directory);
  return highest;
}

// Blocks every signal of this thread while it lives: a handler that ran in the child would run on
// the agent's memory.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    const SignalBits all = ~SignalBits{0};
    DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof(all)) == 0);
  }
  ~AllSignalsBlocked() {
    DDP_CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof(before_)) == 0);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  SignalBits before_ = 0;
};

// One child and what it reads until its exec. Never moves while the child may run.
struct Child {
  SpawnRequest request;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::vector<unsigned long> cpu_mask;
  ChildPlan plan;
  std::unique_ptr<char[]> stack;
};

}  // namespace

class SpawnBatch::Impl {
 public:
  Impl(boost::asio::io_context& io, const ProcessBaseline& baseline, FailureHandler on_failure,
       std::function<void()> on_done)
      : baseline_(baseline),
        on_failure_(std::move(on_failure)),
        on_done_(std::move(on_done)),
        read_end_(io) {}

  ~Impl() {
    write_end_.Reset();
    while (NextFailure()) {
    }
    if (is_done_) return;
    // They may yet come to their exec, hours later even, where a file system hangs.
    for (auto& [pid, child] : children_) static_cast<void>(child.release());
  }

  SpawnResult Start(SpawnRequest request) {
    DDP_CHECK(!request.argv.empty() && !is_closed_);
    if (!read_end_.is_open()) {
      if (const int error = OpenPipe(); error != 0) return DescribeMachineFailure("pipe", error);
    }
    auto child = std::make_unique<Child>();
    child->request = std::move(request);
    Prepare(*child);
    int error = 0;
    const pid_t pid = Clone(*child, &error);
    if (pid < 0) return DescribeMachineFailure("clone", error);
    children_[pid] = std::move(child);
    SpawnResult result;
    result.pid = pid;
    return result;
  }

  void Close() {
    is_closed_ = true;
    write_end_.Reset();
  }

  void Check() {
    while (const std::optional<ChildFailure> failure = NextFailure()) {
      const std::string& executable = children_.at(failure->pid)->request.executable;
      on_failure_(failure->pid, DescribeSpawnFailure(executable, failure->step, failure->error));
    }
  }

 private:
  int OpenPipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    UniqueFd read_end(ends[0]);
    write_end_ = UniqueFd(ends[1]);
    boost::system::error_code error;
    if (fcntl(read_end.get(), F_SETFL, O_NONBLOCK) != 0) return errno;
    if (read_end_.assign(read_end.get(), error)) return error.value();
    read_end.Release();
    Await();
    return 0;
  }

  std::optional<ChildFailure> NextFailure() {
    ChildFailure failure;
    ssize_t size = -1;
    do {
      if (!read_end_.is_open() || is_done_) return std::nullopt;
      size = read(read_end_.native_handle(), &failure, sizeof(failure));
    } while (size < 0 && errno == EINTR);
    is_done_ = size == 0;
    if (is_done_) return std::nullopt;
    DDP_CHECK(size > 0 || errno == EAGAIN);
    if (size < 0) return std::nullopt;
    DDP_CHECK(size == static_cast<ssize_t>(sizeof(failure)));  // written in one piece
    return failure;
  }

  void Await() {
    read_end_.async_wait(stream_descriptor::wait_read, [this](boost::system::error_code error) {
      if (error) return;  // this object is gone
      Check();
      if (!is_done_) return Await();
      const std::function<void()> on_done = std::move(on_done_);
      on_done();
    });
  }

  static pid_t Clone(Child& child, int* error) {
    const auto [bottom, top] = AlignedStack(child);
    const AllSignalsBlocked blocked;
    pid_t pid = -1;
    if (child.request.cgroup >= 0) {
      pid = CloneIntoCgroup(child.request.cgroup, RunChild, bottom,
                            static_cast<size_t>(top - bottom), &child.plan);
    }
    // Our memory is not copied. A fork would need no stacks and no care for what is shared, but it
    // copies page tables, and each page written meanwhile: on two busy cores 64 x `true` took 113
    // ms of time and 131 of processors with it, in place of 55 and 71 (best of 40 in turns), and
    // one clone of an agent of 200 MiB 9 ms instead of 0.02. CLONE_VFORK copies nothing either, but
    // we would sleep until the exec: 0.5 ms for each worker, and as long as the file system of the
    // program gives no answer.
    if (pid < 0) pid = kClone(RunChild, top, CLONE_VM | SIGCHLD, &child.plan);
    *error = errno;
    return pid;
  }

  // The stack grows down on every machine we build for, and begins aligned to 16 bytes.
  static std::pair<char*, char*> AlignedStack(const Child& child) {
    const auto begin = reinterpret_cast<uintptr_t>(child.stack.get());
    const uintptr_t bottom = (begin + 15) & ~uintptr_t{15};
    const uintptr_t top = (begin + kChildStackBytes) & ~uintptr_t{15};
    return {reinterpret_cast<char*>(bottom), reinterpret_cast<char*>(top)};
  }

  void Prepare(Child& child) const {
    child.argv = Pointers(child.request.argv);
    child.envp = Pointers(child.request.env);
    child.stack = std::make_unique_for_overwrite<char[]>(kChildStackBytes);
    ChildPlan& plan = child.plan;
    plan.executable = child.request.executable.c_str();
    plan.argv = child.argv.data();
    plan.envp = child.envp.data();
    plan.stdio[0] = child.request.stdin_fd;
    plan.stdio[1] = child.request.stdout_fd;
    plan.stdio[2] = child.request.stderr_fd;
    plan.error_pipe = write_end_.get();
    if (!HasCloseRange()) plan.highest_fd = HighestOpenFd();
    plan.parent = getpid();
    plan.blocked_signals = baseline_.blocked_signals;
    plan.ignored_signals = baseline_.ignored_signals;
    plan.open_files = baseline_.open_files;
    child.cpu_mask = CpuMask(child.request.cpus);
    plan.cpu_mask = child.cpu_mask.data();
    plan.cpu_mask_bytes = child.cpu_mask.size() * sizeof(unsigned long);
    if (baseline_.oom_scores) {
      plan.oom_score_adj_size = static_cast<size_t>(std::snprintf(
          plan.oom_score_adj, sizeof(plan.oom_score_adj), "%d", baseline_.oom_scores->workers));
    }
  }

  const ProcessBaseline baseline_;
  const FailureHandler on_failure_;
  std::function<void()> on_done_;
  stream_descriptor read_end_;
  UniqueFd write_end_;  // each child has one too, until its exec
  bool is_closed_ = false;
  bool is_done_ = false;
  std::map<pid_t, std::unique_ptr<Child>> children_;
};

SpawnBatch::SpawnBatch(boost::asio::io_context& io, const ProcessBaseline& baseline,
                       FailureHandler on_failure, std::function<void()> on_done)
    : impl_(std::make_unique<Impl>(io, baseline, std::move(on_failure), std::move(on_done))) {}
SpawnBatch::~SpawnBatch() = default;

SpawnResult SpawnBatch::Start(SpawnRequest request) { return impl_->Start(std::move(request)); }
void SpawnBatch::Close() { impl_->Close(); }
void SpawnBatch::Check() { impl_->Check(); }

}  // namespace ddprun::launcher
