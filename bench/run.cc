#include "bench/run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/device.h"
#include "bench/mlp.h"
#include "bench/report_json.h"
#include "bench/training.h"
#include "ddp/process_group.h"
#include "ddp/spawn.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/comm/free_memory.h"
#include "worker_runtime/spawn/rank_news.h"

namespace ddprun::bench {
namespace {

// Where a rank writes what it has found: memory of the process that started it, so that no end of
// either leaves a file behind.
constexpr char kResultsVar[] = "DDPRUN_BENCH_RESULTS";
// A rank is a few MB of network and the program; this is on the safe side.
constexpr uint64_t kBytesOfRank = 64 << 20;
// CUDA and NCCL have some hundred MB of the host's for each process and GPU.
constexpr uint64_t kBytesOfGpuRank = 512 << 20;
// PyTorch's 25 MB are for networks that are larger: they would be two buckets here.
constexpr size_t kCapBytes = 1 << 20;

struct Task {
  Way way = Way::kDistributed;
  int ranks = 1;
  int half = 1;  // each row is measured twice, with all others between
  bool is_sweep = false;
};

std::vector<Task> TasksOf(const RunOptions& options) {
  std::vector<Task> tasks;
  for (const int half : {1, 2}) {
    for (const Way way : {Way::kDataParallel, Way::kDistributed}) {
      for (const int ranks : options.ranks) {
        tasks.push_back({.way = way, .ranks = ranks, .half = half});
      }
    }
  }
  if (const int ranks = RanksWithCores(options.ranks, options.machine); ranks > 0) {
    tasks.push_back({.ranks = ranks, .is_sweep = true});
  }
  return tasks;
}

std::string NameOf(const Task& task) {
  if (task.is_sweep) return absl::StrFormat("bucket_cap_mb with %d ranks", task.ranks);
  return absl::StrCat(LongName(task.way), " with ", task.ranks,
                      task.way == Way::kDataParallel ? " replica" : " rank",
                      task.ranks == 1 ? "" : "s", task.half == 1 ? "" : ", once more");
}

absl::StatusOr<Report> MeasureInGroup(const Task& task, ddp::DeviceType type, double seconds) {
  const auto choice =
      type == ddp::DeviceType::kCuda ? ddp::DeviceChoice::kCuda : ddp::DeviceChoice::kCpu;
  auto group = ddp::ProcessGroup::FromEnv({.timeout = kGroupTimeout, .device = choice});
  if (!group.ok()) return group.status();
  const int gpu = (*group)->gpu();
  absl::StatusOr<Report> found;
  if (task.is_sweep) {
    found = MeasureSweep((*group)->communicator(), gpu, 2 * seconds);
  } else {
    auto training = DistributedTraining::Create((*group)->communicator(), gpu, kCapBytes);
    if (!training.ok()) return training.status();
    found = Measure(**training, seconds / 2);
  }
  if (!found.ok()) return found;
  if (absl::Status status = (*group)->Shutdown(); !status.ok()) return status;
  return found;
}

absl::StatusOr<Report> MeasureReplicas(int replicas, ddp::DeviceType type, double seconds) {
  auto training = ReplicatedTraining::Create(replicas, type);
  if (!training.ok()) return training.status();
  return Measure(**training, seconds);
}

absl::Status WriteFound(const Report& found) {
  const char* const path = std::getenv(kResultsVar);
  const UniqueFd file(open(path == nullptr ? "" : path, O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file.is_open()) return FileError("open", path == nullptr ? kResultsVar : path);
  return WriteAll(file.get(), EncodeFound(found), path);
}

// In a process of its own; its exit code.
int RunRank(const Task& task, const RunOptions& options, int rank) {
  const auto type = options.machine.gpus > 0 ? ddp::DeviceType::kCuda : ddp::DeviceType::kCpu;
  const absl::StatusOr<Report> found = task.way == Way::kDataParallel
                                           ? MeasureReplicas(task.ranks, type, options.seconds / 2)
                                           : MeasureInGroup(task, type, options.seconds);
  absl::Status status = found.status();
  if (status.ok() && rank == 0) status = WriteFound(*found);
  if (status.ok()) return 0;
  std::fprintf(stderr, "ddprun: bench: rank %d: %s\n", rank, std::string(status.message()).c_str());
  return 1;
}

absl::Status CheckMemory(const RunOptions& options) {
  const uint64_t wanted = static_cast<uint64_t>(options.ranks.back()) *
                          (options.machine.gpus > 0 ? kBytesOfGpuRank : kBytesOfRank);
  const uint64_t free = options.machine.memory_bytes;
  if (free == 0 || wanted <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d ranks need up to %.1f GiB of memory, and %.1f GiB are free; ask for "
                      "fewer by --ranks",
                      options.ranks.back(), static_cast<double>(wanted) / (1 << 30),
                      static_cast<double>(free) / (1 << 30)));
}

// Reads from `offset` to the end.
std::string ReadFrom(int file, off_t offset) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = pread(file, buffer, sizeof(buffer), offset)) > 0; offset += got) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

Model ModelOf(const MlpShape& shape) {
  Model model{.layers = shape.hidden_layers + 1, .global_batch = kGlobalBatch};
  for (const MlpParameter& parameter : InitialParameters(shape)) {
    model.parameters += static_cast<int64_t>(parameter.values.size());
  }
  return model;
}

}  // namespace

bool IsRank() {
  const char* const mark = std::getenv(ddp::internal::kSpawnVar);
  return mark != nullptr && ddp::internal::ParseSpawnMark(mark).has_value();
}

absl::StatusOr<Report> Run(const RunOptions& options,
                           const std::function<void(const std::string&)>& say) {
  DDP_CHECK(!options.ranks.empty() && options.ranks.front() == 1);
  const bool is_rank = IsRank();
  UniqueFd results;
  if (!is_rank) {
    if (absl::Status status = CheckMemory(options); !status.ok()) return status;
    results.Reset(memfd_create("ddprun_bench", MFD_CLOEXEC));
    if (!results.is_open()) return absl::ErrnoToStatus(errno, "make memory for the results");
    const std::string path = absl::StrCat("/proc/", getpid(), "/fd/", results.get());
    setenv(kResultsVar, path.c_str(), 1);
  }
  Report report{.machine = options.machine, .model = ModelOf(kShape)};
  off_t read_to = 0;
  const std::vector<Task> tasks = TasksOf(options);
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    if (!is_rank) say(absl::StrCat(i + 1, "/", tasks.size(), ": ", NameOf(task)));
    const int processes = task.way == Way::kDataParallel ? 1 : task.ranks;
    absl::Status status =
        ddp::Spawn(processes, [&](int rank) { return RunRank(task, options, rank); });
    // Of a later measurement: it does not come back from that one.
    if (is_rank && status.ok()) continue;
    if (status.ok()) {
      const std::string line = ReadFrom(results.get(), read_to);
      read_to += static_cast<off_t>(line.size());
      absl::StatusOr<Report> found = DecodeFound(line);
      status = found.status();
      if (found.ok()) Merge(*std::move(found), report);
    }
    if (status.ok()) continue;
    const std::string failure = absl::StrCat(NameOf(task), ": ", status.message());
    if (report.rows.empty()) return absl::Status(status.code(), failure);
    report.failure = failure;
    break;
  }
  return report;
}

Machine ReadMachine(int cores) {
  Machine machine{.cores = cores};
  if (getloadavg(&machine.load, 1) != 1) machine.load = 0;
  const ddp::internal::FreeMemory free = ddp::internal::AskFreeMemory();
  if (free.bytes != UINT64_MAX) machine.memory_bytes = free.bytes;
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re")) {
    double quota = 0, period = 0;
    if (std::fscanf(file, "%lf %lf", &quota, &period) == 2 && period > 0) {
      machine.core_quota = quota / period;
    }
    std::fclose(file);
  }
  return machine;
}

}  // namespace ddprun::bench
