#include <signal.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"

namespace ddprun::gpu_check {
namespace {

constexpr size_t kCount = 1 << 18;
constexpr int kFatal = 20;  // the all-reduce in which the last rank dies

// The same for all processes of a machine.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

[[noreturn]] void Die(const std::string& file) {
  std::FILE* out = std::fopen(file.c_str(), "we");
  if (out != nullptr) {
    std::fprintf(out, "%.9f\n", Now());
    std::fclose(out);
  }
  raise(SIGKILL);
  std::abort();
}

double TimeOfDeath(const std::string& file) {
  double time = 0;
  std::FILE* in = std::fopen(file.c_str(), "re");
  const bool is_read = in != nullptr && std::fscanf(in, "%lf", &time) == 1;
  if (in != nullptr) std::fclose(in);
  MustBeOk("time of death", is_read ? absl::OkStatus() : absl::InternalError("no rank was killed"));
  return time;
}

}  // namespace

int Killed(const Arguments& arguments) {
  if (arguments.size() != 1) return 2;
  // ddprun would stop us before the library notices, which is what this is about.
  signal(SIGTERM, SIG_IGN);
  const auto group = JoinGroup(ddp::Backend::kNccl);
  Gpu gpu(group->gpu());
  void* const memory = gpu.Allocate(kCount * sizeof(float));
  const bool is_victim = group->rank() == group->world_size() - 1;
  for (int i = 1;; ++i) {
    if (i == kFatal && is_victim) Die(arguments[0]);
    auto work = group->communicator().AllReduce(memory, kCount, ddp::DType::kFloat32,
                                                ddp::ReduceOp::kSum, gpu.stream());
    const absl::Status status = work->Wait();
    if (status.ok()) continue;
    const double noticed_s = Now() - TimeOfDeath(arguments[0]);
    PrintValue("noticed_s_" + std::to_string(group->rank()), noticed_s);
    if (group->rank() == 0) PrintText("message", std::string(status.message()));
    return EXIT_FAILURE;
  }
}

}  // namespace ddprun::gpu_check
