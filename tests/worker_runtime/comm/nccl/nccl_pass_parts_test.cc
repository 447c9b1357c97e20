// Reduce, gather, scatter and all-to-all over NCCL, and its operations in place, on the double.
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/expect.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddprun::testing {
namespace {

using ddp::DType;
using ddp::ReduceOp;
using Floats = std::vector<float>;

// Rank r's part for rank p is 10 * r + p.
int CheckPassedParts(int) {
  const auto group = GpuGroup();
  ddp::Communicator& comm = group->communicator();
  const ddp::Stream stream = NewStream();
  const int rank = comm.rank(), size = comm.world_size(), root = size - 1;
  const size_t all = static_cast<size_t>(size), me = static_cast<size_t>(rank);
  const bool is_root = rank == root;
  Floats sent, from_all, gathered, scattered;
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(static_cast<float>(10 * rank + peer));
    from_all.push_back(static_cast<float>(10 * peer + rank));
    gathered.push_back(static_cast<float>(10 * peer));
    scattered.push_back(static_cast<float>(10 * root + peer));
  }
  DeviceArray input(sent), output(Floats(all, -1)), one({-1});
  const DType dtype = DType::kFloat32;
  EXPECT(comm.AllToAll(input.data(), output.data(), 1, dtype, stream)->Wait().ok());
  EXPECT(output.Read(stream) == from_all);
  float* to = is_root ? output.data() : nullptr;
  EXPECT(comm.Gather(input.data(), to, 1, dtype, root, stream)->Wait().ok());
  EXPECT(output.Read(stream) == (is_root ? gathered : from_all));
  const float* from = is_root ? input.data() : nullptr;
  EXPECT(comm.Scatter(from, one.data(), 1, dtype, root, stream)->Wait().ok());
  EXPECT(one.Read(stream) == Floats{scattered[me]});
  DeviceArray in_place(sent);
  EXPECT(comm.Gather(in_place.data() + (is_root ? me : 0), in_place.data(), 1, dtype, root, stream)
             ->Wait()
             .ok());
  if (is_root) EXPECT(in_place.Read(stream)[0] == 0);
  to = is_root ? one.data() : nullptr;
  EXPECT(comm.Reduce(input.data(), to, 1, dtype, ReduceOp::kSum, root, stream)->Wait().ok());
  EXPECT(one.Read(stream)[0] ==
         (is_root ? static_cast<float>(5 * size * (size - 1)) : scattered[me]));
  DeviceArray a({1}), b({2, 3});
  const ReduceOp sum = ReduceOp::kSum;
  EXPECT(comm.AllReduceCoalesced({{a.data(), 1}, {nullptr, 0}, {b.data(), 2}}, dtype, sum, stream)
             ->Wait()
             .ok());
  const float times = static_cast<float>(size);
  EXPECT(a.Read(stream) == Floats{times} && b.Read(stream) == (Floats{2 * times, 3 * times}));
  float on_host = 0;
  EXPECT(absl::IsInvalidArgument(
      comm.AllReduceCoalesced({{a.data(), 1}, {&on_host, 1}}, dtype, sum, stream)->Wait()));
  EXPECT(absl::IsInvalidArgument(
      comm.host().AllReduceCoalesced({{&on_host, 1}, {a.data(), 1}}, dtype, sum)->Wait()));
  // In place.
  DeviceArray ranks(Floats(all, static_cast<float>(rank))), slices(sent);
  EXPECT(comm.AllGather(ranks.data() + me, ranks.data(), 1, dtype, stream)->Wait().ok());
  EXPECT(ranks.Read(stream)[all - 1] == static_cast<float>(root));
  EXPECT(comm.ReduceScatter(slices.data(), slices.data() + me, 1, dtype, ReduceOp::kMax, stream)
             ->Wait()
             .ok());
  EXPECT(slices.Read(stream)[me] == scattered[me]);
  // Refused, without a number.
  for (const auto& work :
       {comm.AllToAll(input.data(), input.data(), 1, dtype, stream),
        comm.Gather(input.data(), nullptr, 1, dtype, rank, stream),
        comm.Scatter(nullptr, one.data(), 1, dtype, rank, stream),
        comm.Reduce(input.data(), one.data(), 1, dtype, ReduceOp::kSum, size, stream),
        comm.SendReceive(input.data(), rank, one.data(), -1, 1, dtype, stream)}) {
    EXPECT(absl::IsInvalidArgument(work->Wait()));
  }
  EXPECT(comm.error().ok());
  EXPECT(group->Shutdown().ok());
  return 0;
}

// Two halves at a time, each with its own communicator on the same GPUs.
int WorkInHalves(int rank) {
  const auto all = GpuGroup();
  auto even = all->Subgroup({0, 2});
  auto odd = all->Subgroup({1, 3});
  EXPECT(even.ok() && odd.ok() && (*even == nullptr) == (rank % 2 == 1));
  ddp::ProcessGroup& mine = rank % 2 == 0 ? **even : **odd;
  EXPECT(std::string(mine.communicator().backend()) == "nccl" && mine.gpu() == rank);
  const ddp::Stream stream = NewStream();
  DeviceArray half({static_cast<float>(rank)}), whole({static_cast<float>(rank)});
  const DType dtype = DType::kFloat32;
  const auto of_half = mine.communicator().AllReduce(half.data(), 1, dtype, ReduceOp::kSum, stream);
  const auto of_all = all->communicator().AllReduce(whole.data(), 1, dtype, ReduceOp::kSum, stream);
  EXPECT(of_all->Wait().ok() && of_half->Wait().ok());
  EXPECT(half.Read(stream) == Floats{rank % 2 == 0 ? 2.0f : 4.0f});
  EXPECT(whole.Read(stream) == Floats{6});
  EXPECT(mine.Shutdown().ok());
  EXPECT(all->communicator().Barrier()->Wait().ok());
  EXPECT(all->Shutdown().ok());
  return 0;
}

TEST_CASE("nccl: subgroups of a group on GPUs are on them, too, and work at once") {
  CHECK(RunOnDouble(4, DoubleEnv(), WorkInHalves) == "0 0 0 0");
}

TEST_CASE("nccl: parts of 1, 2 and 4 ranks get to where they belong, wrong calls are refused") {
  CHECK(RunOnDouble(1, DoubleEnv(), CheckPassedParts) == "0");
  CHECK(RunOnDouble(2, DoubleEnv(), CheckPassedParts) == "0 0");
  CHECK(RunOnDouble(4, DoubleEnv(), CheckPassedParts) == "0 0 0 0");
}

}  // namespace
}  // namespace ddprun::testing
