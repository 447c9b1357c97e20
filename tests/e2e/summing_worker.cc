// Sums a pattern that is found again wherever it goes in the clear, over whatever its group is.
//
// summing_worker WITHOUT UNTIL: rank WITHOUT (-1: none) forgets where the round's key is; UNTIL is
// waited for at the end ("": for nothing).
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ddp/process_group.h"
#include "worker_runtime/env_contract.h"

namespace {

constexpr size_t kCount = size_t{1} << 18;

int Say(const std::string& line, int code) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return code;
}

int Fail(const absl::Status& status) { return Say(std::string(status.message()), 3); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return Say("summing_worker: two arguments", 2);
  if (std::string(std::getenv("RANK")) == argv[1]) unsetenv(ddp::internal::kRoundKeyVar);
  ddp::ProcessGroupOptions options;
  options.device = ddp::DeviceChoice::kCpu;
  auto group = ddp::ProcessGroup::FromEnv(options);
  if (!group.ok()) return Fail(group.status());
  // "ZZZZ" as a number, of rank 0; the others add none, so that it comes back as well.
  const float pattern = std::bit_cast<float>(0x5a5a5a5au);
  for (int times = 0; times < 4; ++times) {
    std::vector<float> data(kCount, (*group)->rank() == 0 ? pattern : 0.0f);
    absl::Status status =
        (*group)
            ->communicator()
            .host()
            .AllReduce(data.data(), kCount, ddp::DType::kFloat32, ddp::ReduceOp::kSum)
            ->Wait();
    if (!status.ok()) return Fail(status);
    if (data != std::vector<float>(kCount, pattern)) return Say("a wrong sum", 4);
  }
  Say("summed", 0);
  const std::string until = argv[2];
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!until.empty() && access(until.c_str(), F_OK) != 0) {
    if (std::chrono::steady_clock::now() > deadline) return Say("waited in vain", 5);
    usleep(10'000);
  }
  absl::Status status = (*group)->Shutdown();
  return status.ok() ? 0 : Fail(status);
}
