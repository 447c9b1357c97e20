// Times all-reduce among N processes of this host.
//
//   allreduce_bench --ranks 2 --backend shm|tcp --memory arena|private [--dtype f32|bf16] [--bytes
//   N]
//                   [--cpus all|own] [--page no|yes]
//
// With `--cpus own` rank r is bound to CPU r; with `--page yes` each tells how far it is, as a
// worker tells its agent.
//
// Prints one JSON object per size: the median, over iterations, of the slowest rank's time.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ddp/process_group.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/store/store_server.h"
#include "tools/bench/report_step/make_page.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 2;
  std::string backend = "shm";
  bool use_arena = true;
  ddp::DType dtype = ddp::DType::kFloat32;
  size_t bytes = 0;  // 0: every size
  bool has_own_cpu = false;
  bool has_page = false;
};

constexpr size_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20};

// Enough iterations for a stable median within about a second.
int IterationsFor(size_t bytes) {
  return static_cast<int>(std::clamp<size_t>((size_t{400} << 20) / bytes, 9, 2000));
}

bool Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "allreduce_bench: %s: %s\n", what, status.ToString().c_str());
  return false;
}

bool Measure(ddp::Communicator& group, const Options& options, size_t bytes) {
  const size_t count = bytes / ddp::SizeOf(options.dtype);
  std::unique_ptr<ddp::Buffer> arena;
  std::vector<float> memory;
  float* data = nullptr;
  if (options.use_arena) {
    auto buffer = group.Allocate(bytes);
    if (!buffer.ok()) return Fail("allocate", buffer.status());
    arena = std::move(*buffer);
    data = static_cast<float*>(arena->data());
  } else {
    memory.resize(bytes / sizeof(float));
    data = memory.data();
  }
  const int iterations = IterationsFor(bytes);
  std::vector<double> times;
  for (int i = -3; i < iterations; ++i) {
    // Each rank writes its own data as a training step does. Otherwise the slice that a rank sums
    // would still lie in its cache from the iteration before, and no byte would change cores.
    std::fill(data, data + bytes / sizeof(float), 1.0f);
    absl::Status status = group.Barrier()->Wait();
    if (!status.ok()) return Fail("barrier", status);
    const auto begin = Clock::now();
    status = group.AllReduce(data, count, options.dtype, ddp::ReduceOp::kSum)->Wait();
    if (!status.ok()) return Fail("all-reduce", status);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    if (i >= 0) times.push_back(us);
  }
  std::vector<double> all(times.size() * static_cast<size_t>(group.world_size()));
  absl::Status status =
      group.AllGather(times.data(), all.data(), times.size(), ddp::DType::kFloat64)->Wait();
  if (!status.ok()) return Fail("all-gather", status);
  for (size_t i = 0; i < times.size(); ++i) {
    for (int rank = 0; rank < group.world_size(); ++rank) {
      times[i] = std::max(times[i], all[static_cast<size_t>(rank) * times.size() + i]);
    }
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  if (group.rank() == 0) {
    std::printf(
        "{\"backend\": \"%s\", \"memory\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
        "\"us\": %.3f}\n",
        group.backend(), options.use_arena ? "arena" : "private", group.world_size(), bytes,
        times[times.size() / 2]);
    std::fflush(stdout);
  }
  return true;
}

int RunRank(const Options& options) {
  if (options.has_own_cpu) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(static_cast<size_t>(std::atoi(std::getenv("RANK"))), &own);
    if (sched_setaffinity(0, sizeof own, &own) != 0) return std::perror("bind to a CPU"), 1;
  }
  ddp::ProcessGroupOptions group_options;
  group_options.backend = options.backend == "tcp" ? ddp::Backend::kTcp : ddp::Backend::kShm;
  if (options.has_page && !ddprun::bench::MakePage()) return std::perror("make a page"), 1;
  group_options.timeout = std::chrono::seconds(60);
  auto group = ddp::ProcessGroup::FromEnv(group_options);
  if (!group.ok()) return Fail("form the group", group.status()), 1;
  for (size_t bytes : kSizes) {
    if (options.bytes != 0 && options.bytes != bytes) continue;
    if (!Measure((*group)->communicator(), options, bytes)) return 1;
  }
  absl::Status status = (*group)->Shutdown();
  return status.ok() ? 0 : (Fail("shut down", status), 1);
}

// This program again, with a worker's environment.
pid_t StartRank(char** argv, int rank, int ranks, uint16_t port) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  setenv("DDPRUN_ROUND", "1", 1);
  execv("/proc/self/exe", argv);
  _exit(127);
}

int Usage() {
  std::fprintf(stderr,
               "usage: allreduce_bench [--ranks N] [--backend shm|tcp] [--memory arena|private] "
               "[--dtype f32|bf16] [--bytes N] [--cpus all|own] [--page no|yes]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--ranks" && std::atoi(value.c_str()) > 0) {
      options.ranks = std::atoi(value.c_str());
    } else if (name == "--backend" && (value == "shm" || value == "tcp")) {
      options.backend = value;
    } else if (name == "--memory" && (value == "arena" || value == "private")) {
      options.use_arena = value == "arena";
    } else if (name == "--dtype" && (value == "f32" || value == "bf16")) {
      options.dtype = value == "bf16" ? ddp::DType::kBFloat16 : ddp::DType::kFloat32;
    } else if (name == "--bytes" && std::atoll(value.c_str()) > 0) {
      options.bytes = static_cast<size_t>(std::atoll(value.c_str()));
    } else if (name == "--cpus" && (value == "all" || value == "own")) {
      options.has_own_cpu = value == "own";
    } else if (name == "--page" && (value == "no" || value == "yes")) {
      options.has_page = value == "yes";
    } else {
      return Usage();
    }
  }
  if (std::getenv("RANK") != nullptr) return RunRank(options);
  auto store = ddprun::rendezvous::StoreServer::Start({}, ddprun::SteadyClock());
  if (!store.ok()) return Fail("start the store", store.status()), 1;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ranks.push_back(StartRank(argv, rank, options.ranks, (*store)->port()));
  }
  int exit_code = 0;
  for (pid_t pid : ranks) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) exit_code = 1;
  }
  return exit_code;
}
