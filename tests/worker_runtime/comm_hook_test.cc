// Communication hooks against PyTorch's.
#include "ddp/comm_hook.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/torch_ddp.h"

namespace ddp {
namespace {

using ddprun::testing::ThreadGroup;
using testing::RunScript;
using testing::ScriptStep;
using Kind = ScriptStep::Kind;

std::unique_ptr<Work> AllReduce(const GradientBucket& bucket, Communicator& communicator,
                                ReduceOp op) {
  return communicator.AllReduce(bucket.data, bucket.count, bucket.dtype, op, bucket.stream);
}
std::unique_ptr<Work> Sum(const GradientBucket& bucket, Communicator& communicator) {
  return AllReduce(bucket, communicator, ReduceOp::kSum);
}
std::unique_ptr<Work> Average(const GradientBucket& bucket, Communicator& communicator) {
  return AllReduce(bucket, communicator, ReduceOp::kAverage);
}

const std::vector<ScriptStep> kScript = {
    {Kind::kPass, {"3210", "3210"}}, {Kind::kPass, {"31", "0"}},       {Kind::kZeroGrad, {}},
    {Kind::kPass, {"2", "02"}},      {Kind::kNoSyncPass, {"0", "12"}}, {Kind::kPass, {"1", "1"}},
};

TEST_CASE("hooks: what a hook leaves in the bucket is the result, as in torch") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  testing::CheckAsTorch(kScript, "find_unused_parameters=1", {.find_unused_parameters = true}, Sum);
}

TEST_CASE("hooks: one that averages gives what no hook gives") {
  const std::vector<ScriptStep> script(3, {Kind::kPass, {"3210", "0123"}});
  const auto with = RunScript(script, {}, Average), without = RunScript(script, {});
  for (int rank : {0, 1}) {
    REQUIRE(with[rank].ok());
    REQUIRE(without[rank].ok());
    CHECK(*with[rank] == *without[rank]);
  }
}

// Three parameters of a bucket each, rank r's gradients r + 1.
struct Replica {
  explicit Replica(Communicator& communicator, DistributedDataParallelOptions options = {})
      : ddp(communicator, [&options] {
          options.bucket_cap_bytes = 4;
          return options;
        }()) {
    for (int i = 0; i < 3; ++i) {
      ddp.AddParameter(std::to_string(i), &weights[i], 1, DType::kFloat32);
    }
  }
  absl::Status Step(float gradient) {
    for (const int id : {0, 1, 2}) {
      *static_cast<float*>(ddp.GradientPtr(id)) = gradient;
      if (absl::Status status = ddp.GradientReady(id); !status.ok()) return status;
    }
    return ddp.Finish();
  }
  float weights[3] = {};
  DistributedDataParallel ddp;
};

TEST_CASE("hooks: buckets come in their order, once complete, also in a group of one") {
  ThreadGroup group(1);
  Replica replica(group.communicator(0));
  REQUIRE(replica.ddp.Finalize().ok());
  std::vector<std::pair<int, bool>> seen;
  std::vector<float> values;
  REQUIRE(replica.ddp
              .RegisterCommHook([&](const GradientBucket& bucket, Communicator& communicator) {
                seen.emplace_back(bucket.index, bucket.is_last);
                values.push_back(*static_cast<float*>(bucket.data));
                CHECK(bucket.dtype == DType::kFloat32);
                CHECK(bucket.count == 1);
                *static_cast<float*>(bucket.data) = 100.0f + static_cast<float>(bucket.index);
                return communicator.Barrier();
              })
              .ok());
  CHECK(replica.Step(5).ok());
  CHECK(seen == std::vector<std::pair<int, bool>>{{0, false}, {1, false}, {2, true}});
  CHECK(values == std::vector<float>(3, 5));
  CHECK(*static_cast<float*>(replica.ddp.GradientPtr(2)) == 100);
  CHECK(*static_cast<float*>(replica.ddp.GradientPtr(0)) == 102);
}

// Power-of-two compression: sends the exponents alone, and makes numbers of them when waited for.
class Expanding : public Work {
 public:
  Expanding(const GradientBucket& bucket, Communicator& communicator)
      : bucket_(bucket), exponents_(bucket.count) {
    const float* values = static_cast<const float*>(bucket.data);
    for (size_t i = 0; i < bucket.count; ++i) exponents_[i] = std::ilogb(values[i]);
    work_ = communicator.AllReduce(exponents_.data(), exponents_.size(), DType::kInt32,
                                   ReduceOp::kMax, bucket.stream);
  }
  absl::Status Wait() override {
    if (absl::Status status = work_->Wait(); !status.ok()) return status;
    float* values = static_cast<float*>(bucket_.data);
    for (size_t i = 0; i < bucket_.count; ++i) values[i] = std::ldexp(1.0f, exponents_[i]);
    return absl::OkStatus();
  }
  absl::Status WaitOn(Stream) override { return Wait(); }
  bool IsDone() const override { return work_->IsDone(); }
  Clock::time_point started_at() const override { return work_->started_at(); }
  Clock::time_point ended_at() const override { return work_->ended_at(); }

 private:
  const GradientBucket bucket_;
  std::vector<int32_t> exponents_;
  std::unique_ptr<Work> work_;
};

TEST_CASE("hooks: a work of the program's own does its rest when it is waited for") {
  ThreadGroup group(2);
  float results[2] = {};
  group.Run([&results](Communicator& communicator) {
    Replica replica(communicator);
    if (!replica.ddp.Finalize().ok()) return;
    const auto hook = [](const GradientBucket& bucket, Communicator& all) {
      return std::make_unique<Expanding>(bucket, all);
    };
    if (!replica.ddp.RegisterCommHook(hook).ok()) return;
    if (!replica.Step(communicator.rank() == 0 ? 3.0f : 9.5f).ok()) return;
    results[communicator.rank()] = *static_cast<float*>(replica.ddp.GradientPtr(1));
  });
  CHECK(results[0] == 8);
  CHECK(results[1] == 8);
}

TEST_CASE("hooks: one that returns no work ends the group in words") {
  ThreadGroup group(2);
  absl::Status statuses[2];
  group.Run([&statuses](Communicator& communicator) {
    Replica replica(communicator);
    absl::Status& status = statuses[communicator.rank()];  // the other rank may end it at any call
    status = replica.ddp.Finalize();
    const auto hook = [](const GradientBucket& bucket, Communicator& all) {
      if (all.rank() == 1 && bucket.index == 1) return std::unique_ptr<Work>();
      return Sum(bucket, all);
    };
    if (status.ok()) status = replica.ddp.RegisterCommHook(hook);
    if (status.ok()) status = replica.Step(1);
  });
  CHECK(statuses[1].message() == "the communication hook returned no work for bucket 1");
  CHECK(statuses[0].code() == absl::StatusCode::kAborted);
  CHECK(statuses[0].message() == Contains("rank 1: the communication hook returned no work"));
}

// Rank 1's hook fails; the other rank hears of it at once and does not wait in its bucket.
void CheckEnds(const CommHook& failing, const std::string& words) {
  ddprun::testing::RunRankThreads({.nodes = {2}}, [&](Communicator& communicator) {
    float weight = 0;
    DistributedDataParallel ddp(communicator);
    ddp.AddParameter("w", &weight, 1, DType::kFloat32);
    CHECK(ddp.Finalize().ok());
    CHECK(ddp.RegisterCommHook(communicator.rank() == 1 ? failing : Sum).ok());
    absl::Status status = ddp.GradientReady(0);
    if (status.ok()) status = ddp.Finish();
    CHECK(status.message() == Contains(words));
  });
}

TEST_CASE("hooks: one that throws, or whose call is refused, ends the group in words") {
  CheckEnds([](const GradientBucket&,
               Communicator&) -> std::unique_ptr<Work> { throw std::runtime_error("no luck"); },
            "the communication hook threw \"no luck\" for bucket 0");
  CheckEnds(
      [](const GradientBucket& bucket, Communicator& communicator) {
        return communicator.AllReduce(nullptr, bucket.count, bucket.dtype, ReduceOp::kSum);
      },
      "null");
}

TEST_CASE("hooks: one that comes at the wrong time, twice or beside compression is refused") {
  ThreadGroup group(1);
  Replica replica(group.communicator(0));
  CHECK(replica.ddp.RegisterCommHook(Sum).code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(replica.ddp.Finalize().ok());
  CHECK(replica.ddp.RegisterCommHook({}).code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(replica.ddp.GradientReady(0).ok());
  CHECK(replica.ddp.RegisterCommHook(Sum).code() == absl::StatusCode::kFailedPrecondition);
  for (const int id : {1, 2}) REQUIRE(replica.ddp.GradientReady(id).ok());
  REQUIRE(replica.ddp.Finish().ok());
  CHECK(replica.ddp.RegisterCommHook(Sum).ok());
  CHECK(replica.ddp.RegisterCommHook(Sum).code() == absl::StatusCode::kFailedPrecondition);

  Replica compressed(group.communicator(0), {.compression = GradientCompression::kBFloat16});
  REQUIRE(compressed.ddp.Finalize().ok());
  CHECK(compressed.ddp.RegisterCommHook(Sum).code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ddp
