// Makes steps as a training program does, all ranks alike: 5 ms of computing, an all-reduce, a word
// to ddprun.
//
// stepping_worker UP UNTIL: makes the file UP<rank> after its first step, and ends with 0 behind
// the step in which rank 0 finds a file UNTIL.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "ddp/process_group.h"
#include "ddp/progress.h"

namespace {

constexpr int64_t kStep_ns = 5'000'000;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "stepping_worker: %s\n", std::string(status.message()).c_str());
  return 3;
}

int64_t CpuTime_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The same work on a core that is slow or seldom there.
void Compute() {
  for (const int64_t end = CpuTime_ns() + kStep_ns; CpuTime_ns() < end;) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return Fail(absl::InvalidArgumentError("two arguments"));
  ddp::ProcessGroupOptions options;
  options.device = ddp::DeviceChoice::kCpu;
  auto group = ddp::ProcessGroup::FromEnv(options);
  if (!group.ok()) return Fail(group.status());
  const int rank = (*group)->rank();
  float is_over = 0;
  for (int64_t step = 1; is_over == 0; ++step) {
    Compute();
    if (rank == 0 && access(argv[2], F_OK) == 0) is_over = 1;
    absl::Status status = (*group)
                              ->communicator()
                              .host()
                              .AllReduce(&is_over, 1, ddp::DType::kFloat32, ddp::ReduceOp::kSum)
                              ->Wait();
    if (!status.ok()) return Fail(status);
    ddp::ReportStep(step, 8);
    const std::string up = argv[1] + std::to_string(rank);
    if (step == 1) close(open(up.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
  }
  absl::Status status = (*group)->Shutdown();
  return status.ok() ? 0 : Fail(status);
}
