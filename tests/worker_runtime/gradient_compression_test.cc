// Gradients that travel in 16 bits, through every CPU backend.
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thread_group.h"
#include "tests/worker_runtime/comm/elements.h"

namespace ddp {
namespace {

using ddprun::testing::RunRankThreads;
using testing::FromBFloat16Bits;
using testing::Half;
using testing::Mix;
using testing::ToBFloat16Bits;

// The compiler's rounding and one by search, not the kernels'.
float Rounded(GradientCompression compression, float value) {
  if (compression == GradientCompression::kFloat16) {
    return static_cast<float>(static_cast<Half>(value));
  }
  return FromBFloat16Bits(ToBFloat16Bits(value));
}

// Element `i` of a gradient on `rank`, over a few orders of magnitude.
float Gradient(int rank, size_t i) {
  const uint64_t random = Mix(static_cast<uint64_t>(rank) * 7919 + i);
  const float whole = static_cast<float>(static_cast<int64_t>(random % 2001) - 1000);
  return std::ldexp(whole, -static_cast<int>(random / 4096 % 16)) / 3;
}

// What every rank must end with: divided and rounded by each rank, summed in rank order in float32,
// rounded, cast back.
float Expected(GradientCompression compression, int world_size, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    sum += Rounded(compression, Gradient(rank, i) / static_cast<float>(world_size));
  }
  return Rounded(compression, sum);
}

// Checks are made by several threads.
class Replica {
 public:
  Replica(Communicator& communicator, GradientCompression compression,
          const std::vector<size_t>& sizes, bool owns_gradients = false, bool rebuilds = false)
      : ddp(communicator, {.bucket_cap_bytes = 4096,
                           .first_bucket_bytes = 1024,
                           .compression = compression,
                           .rebuild_buckets = rebuilds}),
        rank_(communicator.rank()),
        sizes_(sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      values_.emplace_back(sizes[i]);
      own_gradients_.emplace_back(sizes[i]);
      const std::string name = "p" + std::to_string(i);
      const Piece own{own_gradients_[i].data(), sizes[i]};
      owns_gradients ? ddp.AddParameter(name, values_[i].data(), sizes[i], DType::kFloat32, own)
                     : ddp.AddParameter(name, values_[i].data(), sizes[i], DType::kFloat32);
    }
  }

  // Announces the gradients of parameters [begin, end), the last first.
  absl::Status Backward(size_t begin, size_t end) {
    absl::Status status;
    for (size_t id = end; id-- > begin;) {
      float* gradient = At(id);
      for (size_t i = 0; i < sizes_[id]; ++i) gradient[i] = Gradient(rank_, 10000 * id + i);
      status.Update(ddp.GradientReady(static_cast<int>(id)));
    }
    return status;
  }
  size_t CountWrong(GradientCompression compression, int world_size) {
    size_t wrong = 0;
    for (size_t id = 0; id < sizes_.size(); ++id) {
      for (size_t i = 0; i < sizes_[id]; ++i) {
        wrong += At(id)[i] != Expected(compression, world_size, 10000 * id + i) ? 1 : 0;
      }
    }
    return wrong;
  }
  float* At(size_t id) { return static_cast<float*>(ddp.GradientPtr(static_cast<int>(id))); }

  DistributedDataParallel ddp;

 private:
  const int rank_;
  const std::vector<size_t> sizes_;
  std::vector<std::vector<float>> values_, own_gradients_;
};

const std::vector<size_t> kSizes = {1000, 17, 0, 3001, 1};
constexpr GradientCompression kHalves[] = {GradientCompression::kFloat16,
                                           GradientCompression::kBFloat16};

TEST_CASE("compression: averages are the reference's bit for bit, on every backend") {
  struct Layout {
    std::vector<int> nodes;
    bool use_tcp = false;
    bool owns_gradients = false;
    bool rebuilds = false;
  };
  for (const Layout& layout :
       {Layout{{2}}, Layout{{3}}, Layout{{2}, true}, Layout{{1, 2}},
        Layout{{2}, false, /*owns_gradients=*/true}, Layout{{2}, false, true, /*rebuilds=*/true},
        Layout{{2}, false, false, /*rebuilds=*/true}}) {
    for (const GradientCompression compression : kHalves) {
      RunRankThreads({.nodes = layout.nodes, .use_tcp = layout.use_tcp}, [&](Communicator& comm) {
        Replica replica(comm, compression, kSizes, layout.owns_gradients, layout.rebuilds);
        absl::Status status = replica.ddp.Finalize();
        CHECK_MESSAGE(status.ok(), status.ToString());
        for (int step = 0; step < 3 && status.ok(); ++step) {
          // The first parameters before the last: rebuilt buckets are others.
          status = replica.Backward(0, 2);
          status.Update(replica.Backward(2, kSizes.size()));
          status.Update(replica.ddp.Finish());
          CHECK_MESSAGE(status.ok(), status.ToString());
          CHECK(replica.CountWrong(compression, comm.world_size()) == 0);
        }
      });
    }
  }
}

TEST_CASE("compression: NoSync adds up in float32 before anything is rounded") {
  RunRankThreads({.nodes = {2}}, [](Communicator& comm) {
    float value = 0;
    DistributedDataParallel ddp(comm, {.compression = GradientCompression::kBFloat16});
    ddp.AddParameter("p", &value, 1, DType::kFloat32);
    REQUIRE(ddp.Finalize().ok());
    auto* gradient = static_cast<float*>(ddp.GradientPtr(0));
    for (const bool is_last : {false, true}) {
      const auto guard = ddp.NoSync(!is_last);
      *gradient += is_last ? 1.0f : 0.001f;  // each alone would lose what the first adds
      CHECK(ddp.GradientReady(0).ok());
      CHECK(ddp.Finish().ok());
      if (!is_last) CHECK(*gradient == 0.001f);
    }
    const float half = Rounded(GradientCompression::kBFloat16, 1.001f / 2);
    CHECK(*gradient == Rounded(GradientCompression::kBFloat16, half + half));
  });
}

TEST_CASE("compression: the first bucket is reduced while backward runs, in step 1") {
  RunRankThreads({.nodes = {2}}, [](Communicator& comm) {
    Replica replica(comm, GradientCompression::kBFloat16, {1000, 1000, 1000});
    REQUIRE(replica.ddp.Finalize().ok());
    CHECK(replica.Backward(1, 3).ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!replica.ddp.IsReduced(0) && std::chrono::steady_clock::now() < deadline) {
    }
    CHECK(replica.ddp.IsReduced(0));
    CHECK(replica.Backward(0, 1).ok());
    CHECK(replica.ddp.Finish().ok());
    CHECK(replica.CountWrong(GradientCompression::kBFloat16, 2) == 0);
  });
}

TEST_CASE("compression: gradients of other types travel as they are") {
  RunRankThreads({.nodes = {2}}, [](Communicator& comm) {
    std::vector<double> doubles(10);
    std::vector<float> floats(10);
    DistributedDataParallel ddp(comm, {.compression = GradientCompression::kBFloat16});
    ddp.AddParameter("double", doubles.data(), 10, DType::kFloat64);
    ddp.AddParameter("float", floats.data(), 10, DType::kFloat32);
    REQUIRE(ddp.Finalize().ok());
    static_cast<double*>(ddp.GradientPtr(0))[9] = comm.rank() == 0 ? 1.0 : 1e-12;
    static_cast<float*>(ddp.GradientPtr(1))[9] = comm.rank() == 0 ? 1.0f : 1e-4f;
    CHECK(ddp.GradientReady(1).ok());
    CHECK(ddp.GradientReady(0).ok());
    CHECK(ddp.Finish().ok());
    CHECK(static_cast<double*>(ddp.GradientPtr(0))[9] == (1.0 + 1e-12) / 2);
    CHECK(static_cast<float*>(ddp.GradientPtr(1))[9] == 0.5f);
  });
}

TEST_CASE("compression: a group of one keeps its gradients to the bit") {
  ddprun::testing::ThreadGroup(1).Run([](Communicator& comm) {
    Replica replica(comm, GradientCompression::kBFloat16, {100});
    REQUIRE(replica.ddp.Finalize().ok());
    CHECK(replica.Backward(0, 1).ok());
    CHECK(replica.ddp.Finish().ok());
    for (size_t i = 0; i < 100; ++i) CHECK(replica.At(0)[i] == Gradient(0, i));
  });
}

TEST_CASE("compression: float16 is infinite beyond its range, on all ranks alike") {
  RunRankThreads({.nodes = {2}}, [](Communicator& comm) {
    float value = 0;
    DistributedDataParallel ddp(comm, {.compression = GradientCompression::kFloat16});
    ddp.AddParameter("p", &value, 1, DType::kFloat32);
    REQUIRE(ddp.Finalize().ok());
    auto* gradient = static_cast<float*>(ddp.GradientPtr(0));
    for (const float each : {60000.0f, 70000.0f}) {
      *gradient = each;  // the sum of the first is beyond the range, their average is not
      CHECK(ddp.GradientReady(0).ok());
      CHECK(ddp.Finish().ok());
      CHECK(std::isinf(*gradient) == (each > 65504));
    }
  });
}

TEST_CASE("compression: ranks that choose differently are refused by name, on all ranks") {
  std::mutex mutex;
  std::vector<std::string> messages;
  RunRankThreads({.nodes = {3}}, [&](Communicator& comm) {
    Replica replica(
        comm, comm.rank() == 2 ? GradientCompression::kFloat16 : GradientCompression::kNone, {100});
    const absl::Status status = replica.ddp.Finalize();
    CHECK(absl::IsInvalidArgument(status));
    const std::lock_guard lock(mutex);
    messages.emplace_back(status.message());
  });
  CHECK(messages ==
        std::vector<std::string>(3,
                                 "compression is not the same on all ranks: rank 0 sends "
                                 "gradients as float32, rank 2 as float16"));
}

}  // namespace
}  // namespace ddp
