#include "ddp/distributed_data_parallel.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/thread_group.h"

namespace ddp {
namespace {

using ddprun::testing::ThreadGroup;

// One rank's replica: `sizes` float32 parameters "p0", "p1", ..., filled with its rank.
struct Replica {
  Replica(Communicator& communicator, const std::vector<size_t>& sizes,
          DistributedDataParallelOptions options = {})
      : communicator(communicator), ddp(communicator, options) {
    for (const size_t size : sizes) {
      values.emplace_back(size, static_cast<float>(communicator.rank()));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      ddp.AddParameter("p" + std::to_string(i), values[i].data(), sizes[i], DType::kFloat32);
    }
  }
  float* Gradient(int id) { return static_cast<float*>(ddp.GradientPtr(id)); }
  // Adds `amount` to every element and marks all ready, last parameter first.
  absl::Status Backward(float amount) {
    for (int id = static_cast<int>(values.size()) - 1; id >= 0; --id) {
      for (size_t i = 0; i < values[id].size(); ++i) Gradient(id)[i] += amount;
      if (absl::Status status = ddp.GradientReady(id); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  bool AllGradientsAre(float expected) {
    for (size_t id = 0; id < values.size(); ++id) {
      for (size_t i = 0; i < values[id].size(); ++i) {
        if (Gradient(static_cast<int>(id))[i] != expected) return false;
      }
    }
    return true;
  }

  Communicator& communicator;
  std::vector<std::vector<float>> values;
  DistributedDataParallel ddp;
};

// Runs `body` on every rank, one check at a time, and returns what each rank returned.
std::vector<absl::Status> OnAllRanks(int world_size,
                                     const std::function<absl::Status(Communicator&)>& body) {
  std::vector<absl::Status> statuses(world_size);
  ThreadGroup group(world_size);
  group.Run([&](Communicator& c) { statuses[c.rank()] = body(c); });
  return statuses;
}

void CheckAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) CHECK_MESSAGE(status.ok(), status.message());
}

TEST_CASE("ddp: every rank starts from rank 0's parameters") {
  CheckAllOk(OnAllRanks(4, [](Communicator& communicator) {
    Replica replica(communicator, {3, 0, 100, 1});
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    for (const std::vector<float>& value : replica.values) {
      for (const float element : value) {
        if (element != 0) return absl::InternalError("not rank 0's");
      }
    }
    return replica.AllGradientsAre(0) ? absl::OkStatus() : absl::InternalError("not zeroed");
  }));
}

TEST_CASE("ddp: more parameters than broadcasts under way at once all arrive") {
  CheckAllOk(OnAllRanks(2, [](Communicator& communicator) {
    Replica replica(communicator, std::vector<size_t>(150, 2));
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    return replica.values[149][1] == 0 ? absl::OkStatus() : absl::InternalError("not rank 0's");
  }));
}

TEST_CASE("ddp: after Finish every gradient is the average over the ranks") {
  CheckAllOk(OnAllRanks(4, [](Communicator& communicator) {
    Replica replica(communicator, {1000, 17, 3000}, {.bucket_cap_bytes = 4096});
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    if (replica.ddp.bucket_count() != 2) return absl::InternalError("bucket count");
    for (int step = 1; step <= 3; ++step) {
      if (absl::Status status = replica.ddp.ZeroGrad(); !status.ok()) return status;
      const float mine = static_cast<float>(step * (communicator.rank() + 1));
      if (absl::Status status = replica.Backward(mine); !status.ok()) return status;
      if (absl::Status status = replica.ddp.Finish(); !status.ok()) return status;
      if (!replica.AllGradientsAre(2.5f * step)) return absl::InternalError("not the average");
    }
    return absl::OkStatus();
  }));
}

TEST_CASE("ddp: NoSync adds up locally and the next pass reduces the sums") {
  CheckAllOk(OnAllRanks(2, [](Communicator& communicator) {
    Replica replica(communicator, {10, 10});
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    const float mine = communicator.rank() == 0 ? 1.0f : 3.0f;
    for (int micro = 0; micro < 4; ++micro) {
      const auto guard = replica.ddp.NoSync(micro < 3);
      if (absl::Status status = replica.Backward(mine); !status.ok()) return status;
      if (absl::Status status = replica.ddp.Finish(); !status.ok()) return status;
      if (micro < 3 && !replica.AllGradientsAre(mine * (micro + 1))) {
        return absl::InternalError("not local");
      }
    }
    return replica.AllGradientsAre(8) ? absl::OkStatus() : absl::InternalError("not the average");
  }));
}

TEST_CASE("ddp: NoSync ends with its last guard, moved or nested") {
  ThreadGroup group(1);
  Replica replica(group.communicator(0), {1});
  REQUIRE(replica.ddp.Finalize().ok());
  {
    auto outer = replica.ddp.NoSync();
    auto moved = std::move(outer);
    { const auto inner = replica.ddp.NoSync(); }
    const auto without_effect = replica.ddp.NoSync(false);
    CHECK(replica.Backward(1).ok());
    CHECK(replica.Backward(1).ok());  // twice is an error in a synchronised pass
  }
  CHECK(replica.Backward(1).ok());
  CHECK_FALSE(replica.Backward(1).ok());
  CHECK(replica.ddp.Finish().message().find("a gradient of this pass was refused: ") == 0);
  CHECK(replica.Backward(1).ok());
  CHECK(replica.ddp.Finish().ok());
}

// Waits until the first bucket of the very first pass is reduced before the last gradient is even
// computed: only possible when reduction overlaps backward.
TEST_CASE("ddp: the first bucket is reduced while backward of the first step still runs") {
  CheckAllOk(OnAllRanks(2, [](Communicator& communicator) {
    Replica replica(communicator, {100, 100}, {.bucket_cap_bytes = 400});
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    replica.Gradient(1)[0] = static_cast<float>(communicator.rank());
    if (absl::Status status = replica.ddp.GradientReady(1); !status.ok()) return status;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!replica.ddp.IsReduced(0)) {
      if (std::chrono::steady_clock::now() > deadline) return absl::InternalError("no overlap");
      std::this_thread::yield();
    }
    if (replica.Gradient(1)[0] != 0.5f) return absl::InternalError("not the average");
    if (absl::Status status = replica.ddp.GradientReady(0); !status.ok()) return status;
    if (absl::Status status = replica.ddp.Finish(); !status.ok()) return status;
    const ReductionTimes& times = replica.ddp.last_reduction();
    if (times.communication.count() <= 0) return absl::InternalError("no communication time");
    if (times.communication_end <= times.backward_end) {
      return absl::InternalError("the last bucket ended before its gradient was ready");
    }
    const std::vector<BucketTimes> buckets = replica.ddp.last_buckets();
    if (buckets.size() != 2) return absl::InternalError("not the times of both buckets");
    for (const BucketTimes& bucket : buckets) {
      if (bucket.ready > bucket.started || bucket.started > bucket.ended) {
        return absl::InternalError("a bucket's times are out of order");
      }
    }
    const bool is_one_behind_the_other = buckets[0].ended <= buckets[1].ready;
    return is_one_behind_the_other && buckets[1].ended == times.communication_end
               ? absl::OkStatus()
               : absl::InternalError("the buckets' times are not those of the pass");
  }));
}

// What every rank is told when rank 2 of 4 registers `sizes` and `names` of its own.
std::vector<absl::Status> WithOddRank(const std::function<void(DistributedDataParallel&)>& odd,
                                      size_t odd_cap = 25 << 20) {
  return OnAllRanks(4, [&](Communicator& communicator) {
    static float memory[100];
    const bool is_odd = communicator.rank() == 2;
    DistributedDataParallel ddp(communicator,
                                {.bucket_cap_bytes = is_odd ? odd_cap : size_t{25} << 20});
    if (is_odd) {
      odd(ddp);
    } else {
      ddp.AddParameter("conv.weight", memory, 100, DType::kFloat32);
      ddp.AddParameter("conv.bias", memory, 10, DType::kFloat32);
    }
    return ddp.Finalize();
  });
}

void CheckAllSay(const std::vector<absl::Status>& statuses, const std::string& message) {
  for (const absl::Status& status : statuses) {
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(status.message() == message);
  }
}

TEST_CASE("ddp: a parameter of another size is named on every rank, with the rank") {
  static float memory[100];
  CheckAllSay(WithOddRank([](DistributedDataParallel& ddp) {
                ddp.AddParameter("conv.weight", memory, 100, DType::kFloat32);
                ddp.AddParameter("conv.bias", memory, 11, DType::kFloat32);
              }),
              "parameter 1 is not the same on all ranks: rank 0 has 'conv.bias', 10 x float32, "
              "rank 2 has 'conv.bias', 11 x float32");
}

TEST_CASE("ddp: a parameter of another type or name is named on every rank") {
  static float memory[100];
  CheckAllSay(WithOddRank([](DistributedDataParallel& ddp) {
                ddp.AddParameter("conv.weight", memory, 100, DType::kInt32);
                ddp.AddParameter("conv.bias", memory, 10, DType::kFloat32);
              }),
              "parameter 0 is not the same on all ranks: rank 0 has 'conv.weight', 100 x float32, "
              "rank 2 has 'conv.weight', 100 x int32");
  CheckAllSay(WithOddRank([](DistributedDataParallel& ddp) {
                ddp.AddParameter("conv.weights", memory, 100, DType::kFloat32);
                ddp.AddParameter("conv.bias", memory, 10, DType::kFloat32);
              }),
              "parameter 0 is not the same on all ranks: rank 0 has 'conv.weight', 100 x float32, "
              "rank 2 has 'conv.weights', 100 x float32");
}

TEST_CASE("ddp: a missing or an additional parameter is named on every rank") {
  static float memory[100];
  CheckAllSay(WithOddRank([](DistributedDataParallel& ddp) {
                ddp.AddParameter("conv.weight", memory, 100, DType::kFloat32);
              }),
              "parameter 1 is not the same on all ranks: rank 0 has 'conv.bias', 10 x float32, "
              "rank 2 has only 1 parameters");
  CheckAllSay(WithOddRank([](DistributedDataParallel& ddp) {
                ddp.AddParameter("conv.weight", memory, 100, DType::kFloat32);
                ddp.AddParameter("conv.bias", memory, 10, DType::kFloat32);
                ddp.AddParameter("fc.weight", memory, 5, DType::kFloat32);
              }),
              "parameter 2 is not the same on all ranks: rank 0 has only 2 parameters, rank 2 has "
              "'fc.weight', 5 x float32");
}

TEST_CASE("ddp: bucket limits that differ are an error on every rank") {
  static float memory[100];
  CheckAllSay(WithOddRank(
                  [](DistributedDataParallel& ddp) {
                    ddp.AddParameter("conv.weight", memory, 100, DType::kFloat32);
                    ddp.AddParameter("conv.bias", memory, 10, DType::kFloat32);
                  },
                  1000),
              "bucket limits are not the same on all ranks: rank 0 has 1048576 and 26214400 bytes, "
              "rank 2 has 1048576 and 1000");
}

TEST_CASE("ddp: a name registered twice or memory that is missing fails at Finalize") {
  float memory[10] = {};
  {
    ThreadGroup group(1);
    DistributedDataParallel ddp(group.communicator(0));
    ddp.AddParameter("w", memory, 10, DType::kFloat32);
    ddp.AddParameter("w", memory, 10, DType::kFloat32);
    CHECK(ddp.Finalize().message() == "parameter 'w' was registered twice");
  }
  ThreadGroup group(1);
  DistributedDataParallel ddp(group.communicator(0));
  ddp.AddParameter("w", nullptr, 10, DType::kFloat32);
  CHECK(ddp.Finalize().message() == "parameter 'w' of 10 elements has no memory");
}

TEST_CASE("ddp: a rank that misses a gradient fails all ranks, and the message says which") {
  const std::vector<absl::Status> statuses = OnAllRanks(2, [](Communicator& communicator) {
    Replica replica(communicator, {10, 10, 10}, {.bucket_cap_bytes = 40});
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    if (communicator.rank() == 0) {
      if (absl::Status status = replica.Backward(1); !status.ok()) return status;
      return replica.ddp.Finish();
    }
    for (const int id : {2, 0}) {
      if (absl::Status status = replica.ddp.GradientReady(id); !status.ok()) return status;
    }
    return replica.ddp.Finish();
  });
  CHECK(statuses[1].code() == absl::StatusCode::kFailedPrecondition);
  CHECK(statuses[1].message() == Contains("1 of 3 parameters got no gradient: 'p1'"));
  CHECK(statuses[0].code() == absl::StatusCode::kAborted);
  // Behind the name of the bucket, where the rank already waits for one.
  CHECK(statuses[0].message() == Contains("rank 1: Expected to have finished reduction"));
  CHECK(statuses[0].message() == Contains("'p1'"));
}

TEST_CASE("ddp: calls in the wrong order are refused") {
  ThreadGroup group(1);
  Replica replica(group.communicator(0), {4});
  CHECK(replica.ddp.GradientReady(0).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(replica.ddp.Finish().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(replica.ddp.ZeroGrad().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(replica.ddp.bucket_count() == 0);
  CHECK(replica.ddp.last_buckets().empty());
  CHECK(replica.ddp.GradientPtr(0) == nullptr);
  REQUIRE(replica.ddp.Finalize().ok());
  for (const int unknown : {-1, 1, 99}) {
    CHECK(replica.ddp.GradientPtr(unknown) == nullptr);
    CHECK(replica.ddp.GradientReady(unknown).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(replica.ddp.Finalize().code() == absl::StatusCode::kFailedPrecondition);
  float late = 0;
  replica.ddp.AddParameter("late", &late, 1, DType::kFloat32);
  CHECK(replica.ddp.Finish().message() == "parameter 'late' was registered after Finalize()");
}

TEST_CASE("ddp: calls of two threads may follow each other, and those that overlap are told") {
  std::atomic<bool> may_come{false};
  CheckAllOk(OnAllRanks(2, [&may_come](Communicator& communicator) {
    Replica replica(communicator, {4});
    if (absl::Status status = replica.ddp.Finalize(); !status.ok()) return status;
    if (communicator.rank() == 1) {
      while (!may_come) std::this_thread::yield();
      if (absl::Status status = replica.Backward(1); !status.ok()) return status;
      return replica.ddp.Finish();
    }
    if (absl::Status status = replica.Backward(1); !status.ok()) return status;
    const auto overlapped = [](const absl::Status& status) {
      return status.message().find("while another thread is in a call") != std::string::npos;
    };
    absl::Status finished;
    std::thread other([&] {  // its call waits for rank 1
      do finished = replica.ddp.Finish();
      while (overlapped(finished));
    });
    const bool is_told =
        ddprun::testing::Eventually([&] { return overlapped(replica.ddp.ZeroGrad()); });
    may_come = true;
    other.join();
    return is_told ? finished : absl::UnknownError("an overlapping call was not told");
  }));
}

TEST_CASE("ddp: mixed types are reduced each in its own bucket") {
  CheckAllOk(OnAllRanks(3, [](Communicator& communicator) {
    std::vector<double> wide(5);
    std::vector<float> narrow(7);
    DistributedDataParallel ddp(communicator);
    ddp.AddParameter("wide", wide.data(), wide.size(), DType::kFloat64);
    ddp.AddParameter("narrow", narrow.data(), narrow.size(), DType::kFloat32);
    if (absl::Status status = ddp.Finalize(); !status.ok()) return status;
    if (ddp.bucket_count() != 2) return absl::InternalError("bucket count");
    static_cast<double*>(ddp.GradientPtr(0))[4] = communicator.rank() + 1e-12;
    static_cast<float*>(ddp.GradientPtr(1))[6] = static_cast<float>(communicator.rank());
    for (const int id : {1, 0}) {
      if (absl::Status status = ddp.GradientReady(id); !status.ok()) return status;
    }
    if (absl::Status status = ddp.Finish(); !status.ok()) return status;
    const bool is_right = static_cast<double*>(ddp.GradientPtr(0))[4] > 1.0 &&
                          static_cast<float*>(ddp.GradientPtr(1))[6] == 1.0f;
    return is_right ? absl::OkStatus() : absl::InternalError("not the average");
  }));
}

}  // namespace
}  // namespace ddp
