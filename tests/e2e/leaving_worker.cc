// What first_failure_test starts: rank 1 leaves in the third step, while the others are in a
// collective, and the others end because of it.
//
//   leaving_worker wait|finish CODE [MILLISECONDS [OTHERS_CODE]]
//
// wait: they wait for an all-reduce; finish: for the gradients of a step. Rank 1 returns CODE,
// after having left the group for so long: freeing a large model or a GPU takes time. The others
// end with 1, or with OTHERS_CODE.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ddp/ddp.h"

namespace {

constexpr size_t kCount = 100'000;
constexpr int kLastStep = 3;

int others_code = EXIT_FAILURE;

void MustBeOk(const char* what, const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, std::string(status.message()).c_str());
  std::exit(others_code);
}

void Wait(ddp::ProcessGroup& group, std::vector<float>& values) {
  const auto work = group.communicator().AllReduce(values.data(), kCount, ddp::DType::kFloat32,
                                                   ddp::ReduceOp::kSum);
  MustBeOk("all-reduce", work->Wait());
}

void Step(ddp::DistributedDataParallel& ddp, const std::vector<float>& values) {
  MustBeOk("zero", ddp.ZeroGrad());
  std::memcpy(ddp.GradientPtr(0), values.data(), kCount * sizeof(float));
  MustBeOk("gradient", ddp.GradientReady(0));
  MustBeOk("finish", ddp.Finish());
}

// Returns in rank 1 alone.
void Train(bool is_finish) {
  auto group = ddp::ProcessGroup::FromEnv({.timeout = std::chrono::minutes(5)});
  MustBeOk("group", group.status());
  std::vector<float> values(kCount, 1);
  ddp::DistributedDataParallel ddp((*group)->communicator(), {});
  ddp.AddParameter("layer", values.data(), kCount, ddp::DType::kFloat32);
  MustBeOk("finalize", ddp.Finalize());
  for (int step = 1; step < kLastStep || (*group)->rank() != 1; ++step) {
    if (is_finish) {
      Step(ddp, values);
    } else {
      Wait(**group, values);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) return 2;
  if (argc == 5) others_code = std::atoi(argv[4]);
  Train(std::strcmp(argv[1], "finish") == 0);
  if (argc > 3) usleep(static_cast<useconds_t>(1000 * std::atoi(argv[3])));
  return std::atoi(argv[2]);
}
