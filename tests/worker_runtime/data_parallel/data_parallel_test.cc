#include "ddp/data_parallel.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/subprocess.h"
#include "tests/support/torch_python.h"

namespace ddp {
namespace {

using Floats = std::vector<float>;

bool Says(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  INFO(std::string(status.message()));
  CHECK(status.code() == code);
  const bool is_said = std::string(status.message()).find(text) != std::string::npos;
  CHECK(is_said);
  return status.code() == code && is_said;
}

float* Gradient(const DataParallel& dp, int id, int replica) {
  return static_cast<float*>(dp.GradientPtr(id, replica));
}

TEST_CASE("data parallel: chunks are those of torch.chunk") {
  const auto& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  ddprun::testing::Subprocess python(
      {torch.python, "-c",
       "import torch\n"
       "for n in range(1, 9):\n"
       "  for b in range(1, 41):\n"
       "    print(n, b, *[c.numel() for c in torch.chunk(torch.zeros(b), n)])\n"});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  std::string ours;
  for (int n = 1; n < 9; ++n) {
    DataParallel dp({.replicas = n});
    for (int64_t batch = 1; batch < 41; ++batch) {
      absl::StrAppend(&ours, n, " ", batch);
      int64_t end = 0;
      for (const Chunk& chunk : dp.Scatter(batch)) {
        REQUIRE(chunk.begin == end);
        end = chunk.end;
        absl::StrAppend(&ours, " ", chunk.end - chunk.begin);
      }
      REQUIRE(end == batch);
      ours += "\n";
    }
  }
  CHECK(ours == python.out());
}

// y = w x + b, trained on points of a line by the mean of the squares over the whole batch.
struct Line {
  explicit Line(int replicas) : dp({.replicas = replicas}) {
    w_id = dp.AddParameter("w", &w, 1, DType::kFloat32);
    b_id = dp.AddParameter("b", &b, 1, DType::kFloat32);
    REQUIRE(dp.Finalize().ok());
  }

  // The loss before the step.
  double Step(const Floats& x, const Floats& y) {
    REQUIRE(dp.ZeroGrad().ok());
    const std::vector<Chunk> chunks = dp.Scatter(static_cast<int64_t>(x.size()));
    REQUIRE(dp.Replicate().ok());
    std::vector<Floats> outputs(chunks.size());
    REQUIRE(dp.ParallelApply([&](int r) {
                const auto [begin, end] = chunks[static_cast<size_t>(r)];
                for (int64_t i = begin; i < end; ++i) {
                  outputs[static_cast<size_t>(r)].push_back(
                      *At(w_id, r) * x[static_cast<size_t>(i)] + *At(b_id, r));
                }
                return absl::OkStatus();
              }).ok());
    std::vector<const void*> inputs;
    for (const Floats& output : outputs) inputs.push_back(output.data());
    Floats all(x.size());
    REQUIRE(dp.Gather(inputs, sizeof(float), all.data()).ok());
    double loss = 0;
    Floats error(x.size());  // the gradient of the loss
    for (size_t i = 0; i < x.size(); ++i) {
      loss += (all[i] - y[i]) * (all[i] - y[i]) / static_cast<double>(x.size());
      error[i] = 2 * (all[i] - y[i]) / static_cast<float>(x.size());
    }
    REQUIRE(dp.ParallelApply([&](int r) {
                const auto [begin, end] = chunks[static_cast<size_t>(r)];
                for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                  *Gradient(dp, w_id, r) += error[i] * x[i];
                  *Gradient(dp, b_id, r) += error[i];
                }
                absl::Status status = dp.GradientReady(w_id, r);
                return status.ok() ? dp.GradientReady(b_id, r) : status;
              }).ok());
    REQUIRE(dp.Finish().ok());
    w -= 0.1F * *Gradient(dp, w_id, 0);
    b -= 0.1F * *Gradient(dp, b_id, 0);
    return loss;
  }
  float* At(int id, int replica) const { return static_cast<float*>(dp.ParameterPtr(id, replica)); }

  float w = 0.5F, b = -1;
  int w_id = 0, b_id = 0;
  DataParallel dp;
};

TEST_CASE("data parallel: any number of replicas trains as one does") {
  Floats x, y;
  for (int i = 0; i < 10; ++i) {
    x.push_back(0.1F * static_cast<float>(i));
    y.push_back(3 * x.back() + 2);
  }
  Line one(1);
  std::vector<double> losses;
  for (int step = 0; step < 50; ++step) losses.push_back(one.Step(x, y));
  REQUIRE(losses.back() < losses.front() / 10);
  for (int replicas : {2, 3, 7, 10, 16}) {
    CAPTURE(replicas);
    Line line(replicas);
    for (double loss : losses) REQUIRE(line.Step(x, y) == doctest::Approx(loss).epsilon(1e-4));
    CHECK(line.w == doctest::Approx(one.w).epsilon(1e-4));
  }
}

// One parameter of two elements; each replica adds `values[r]` to its gradient.
absl::Status Pass(DataParallel& dp, const Floats& values) {
  dp.Scatter(static_cast<int64_t>(values.size()));
  if (absl::Status status = dp.Replicate(); !status.ok()) return status;
  absl::Status status = dp.ParallelApply([&](int r) {
    Gradient(dp, 0, r)[0] += values[static_cast<size_t>(r)];
    Gradient(dp, 0, r)[1] += 1;
    return dp.GradientReady(0, r);
  });
  return status.ok() ? dp.Finish() : status;
}

TEST_CASE("data parallel: gradients are summed in the order of replicas and add up over passes") {
  float weights[2] = {1, 2};
  DataParallel dp({.replicas = 3});
  dp.AddParameter("weights", weights, 2, DType::kFloat32);
  REQUIRE(dp.Finalize().ok());
  REQUIRE(Pass(dp, {1e8F, -1e8F, 1}).ok());  // (1 - 1e8) + 1e8 would be 0 in float32
  CHECK(Gradient(dp, 0, 0)[0] == 1);
  CHECK(Gradient(dp, 0, 0)[1] == 3);
  REQUIRE(Pass(dp, {1, 2}).ok());  // two of the three take part
  CHECK(Gradient(dp, 0, 0)[0] == 4);
  CHECK(Gradient(dp, 0, 0)[1] == 5);
  REQUIRE(dp.ZeroGrad().ok());
  CHECK(Gradient(dp, 0, 0)[1] == 0);
}

TEST_CASE("data parallel: it tells what was moved and what lies where") {
  double weights[3] = {1, 2, 3};
  DataParallel dp({.replicas = 2});
  dp.AddParameter("weights", weights, 3, DType::kFloat64);
  dp.AddParameter("nothing", nullptr, 0, DType::kFloat32);
  CHECK(dp.bytes_on(0) == 0);
  REQUIRE(dp.Finalize().ok());
  CHECK(dp.bytes_on(1) == 2 * 64);
  CHECK(dp.bytes_on(2) == 0);
  const std::vector<Chunk> chunks = dp.Scatter(3);
  REQUIRE(chunks.size() == 2);
  const int32_t batch[3] = {4, 5, 6};
  int32_t rows[2][2] = {};
  REQUIRE(dp.ScatterRows(batch, sizeof(int32_t), std::vector<void*>{rows[0], rows[1]}).ok());
  CHECK(rows[0][1] == 5);
  CHECK(rows[1][0] == 6);
  REQUIRE(dp.Replicate().ok());
  CHECK(static_cast<double*>(dp.ParameterPtr(0, 1))[2] == 3);
  const int16_t first[2] = {1, 2}, second[1] = {3};
  int16_t all[3] = {};
  REQUIRE(dp.Gather(std::vector<const void*>{first, second}, sizeof(int16_t), all).ok());
  CHECK(all[0] == 1);
  CHECK(all[2] == 3);
  for (int replica : {0, 1}) {
    for (int id : {0, 1}) REQUIRE(dp.GradientReady(id, replica).ok());
  }
  REQUIRE(dp.Finish().ok());
  CHECK(dp.last_step().bytes_moved == 4 + 24 + 2 + 24);
  CHECK(dp.last_step().replicate.count() > 0);
}

TEST_CASE("data parallel: each body runs on the thread of its device") {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  const int cpus = CPU_COUNT(&allowed);
  DataParallel dp({.replicas = cpus});
  REQUIRE(dp.Finalize().ok());
  std::mutex mutex;
  std::vector<int> counts(CPU_SETSIZE);  // by CPU: replicas that may use it
  std::vector<pid_t> threads(static_cast<size_t>(cpus));
  for (int pass = 0; pass < 2; ++pass) {
    dp.Scatter(cpus);
    REQUIRE(dp.Replicate().ok());
    REQUIRE(dp.ParallelApply([&](int r) {
                const std::lock_guard<std::mutex> lock(mutex);
                pid_t& thread = threads[static_cast<size_t>(r)];
                CHECK((thread == 0 || thread == ::gettid()));
                thread = ::gettid();
                cpu_set_t mine;
                CHECK(::sched_getaffinity(0, sizeof(mine), &mine) == 0);
                CHECK(CPU_COUNT(&mine) == 1);
                for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) counts[cpu] += CPU_ISSET(cpu, &mine);
                return absl::OkStatus();
              }).ok());
    REQUIRE(dp.Finish().ok());
  }
  for (int count : counts) CHECK((count == 0 || count == 2));
  CHECK(std::set<pid_t>(threads.begin(), threads.end()).size() == threads.size());
  CHECK(threads[0] != ::gettid());
}

TEST_CASE("data parallel: the first replica that fails is named, and the others are waited for") {
  DataParallel dp({.replicas = 3});
  REQUIRE(dp.Finalize().ok());
  dp.Scatter(3);
  REQUIRE(dp.Replicate().ok());
  std::atomic<int> ran{0};
  const absl::Status status = dp.ParallelApply([&](int r) {
    ++ran;
    return r == 0 ? absl::OkStatus() : absl::DataLossError(absl::StrCat("bad chunk ", r));
  });
  Says(status, absl::StatusCode::kDataLoss, "replica 1: bad chunk 1");
  CHECK(ran == 3);
}

TEST_CASE("data parallel: a body that runs bodies, replicates or finishes is told so") {
  const auto nothing = [](int) { return absl::OkStatus(); };
  DataParallel dp({.replicas = 2});
  REQUIRE(dp.Finalize().ok());
  dp.Scatter(2);
  REQUIRE(dp.Replicate().ok());
  const int8_t row = 0;
  int8_t rows[2];
  const std::vector<const void*> outputs = {&row, &row};
  const std::vector<std::function<absl::Status()>> calls = {
      [&] { return dp.ParallelApply(nothing); },
      [&] { return dp.Replicate(); },
      [&] { return dp.Gather(outputs, 1, rows); },
      [&] { return dp.ZeroGrad(); },
      [&] { return dp.Finish(); },
  };
  for (const auto& call : calls) {
    const absl::Status status =
        dp.ParallelApply([&](int r) { return r == 1 ? call() : absl::OkStatus(); });
    Says(status, absl::StatusCode::kFailedPrecondition,
         "replica 1: DataParallel: a body has called");
  }
  CHECK(dp.ParallelApply(nothing).ok());
}

TEST_CASE("data parallel: wrong use is an error that says what to do") {
  using Code = absl::StatusCode;
  float weights[2] = {};
  const auto nothing = [](int) { return absl::OkStatus(); };
  DataParallel dp({.replicas = 2});
  dp.AddParameter("weights", weights, 2, DType::kFloat32);
  Says(dp.Replicate(), Code::kFailedPrecondition, "call Finalize() first");
  Says(dp.ZeroGrad(), Code::kFailedPrecondition, "call Finalize() first");
  CHECK(dp.GradientPtr(0, 0) == nullptr);
  REQUIRE(dp.Finalize().ok());
  Says(dp.Finalize(), Code::kFailedPrecondition, "was called before");
  Says(dp.Replicate(), Code::kFailedPrecondition, "call Scatter()");
  CHECK(dp.Scatter(0).empty());
  CHECK(dp.Scatter(-5).empty());
  Says(dp.ParallelApply(nothing), Code::kFailedPrecondition, "outside of a pass");
  Says(dp.Finish(), Code::kFailedPrecondition, "outside of a pass");
  Says(dp.GradientReady(0, 0), Code::kFailedPrecondition, "has no part in this pass");

  dp.Scatter(1);
  REQUIRE(dp.Replicate().ok());
  Says(dp.ParallelApply(nullptr), Code::kInvalidArgument, "the body is empty");
  for (int id : {-1, 1}) {
    CHECK(dp.ParameterPtr(id, 0) == nullptr);
    Says(dp.GradientReady(id, 0), Code::kInvalidArgument, "there are 1 parameters");
  }
  for (int replica : {-1, 2}) {
    CHECK(dp.GradientPtr(0, replica) == nullptr);
    Says(dp.GradientReady(0, replica), Code::kInvalidArgument, "2 replicas");
  }
  Says(dp.GradientReady(0, 1), Code::kFailedPrecondition, "has no part in this pass");
  Says(dp.Finish(), Code::kFailedPrecondition, "'weights' of replica 0 was not marked ready");
  REQUIRE(dp.GradientReady(0, 0).ok());
  Says(dp.GradientReady(0, 0), Code::kFailedPrecondition, "twice");
  Says(dp.Gather({}, 4, weights), Code::kInvalidArgument, "1 replicas take part");
  Says(dp.ScatterRows(weights, 4, {}), Code::kInvalidArgument, "1 replicas take part");
  const std::vector<void*> nowhere = {nullptr};
  Says(dp.ScatterRows(weights, 4, nowhere), Code::kInvalidArgument, "an output of a replica");
  const std::vector<const void*> missing = {nullptr};
  Says(dp.Gather(missing, 4, weights), Code::kInvalidArgument, "an output of a replica");
  REQUIRE(dp.Finish().ok());

  dp.AddParameter("late", weights, 2, DType::kFloat32);
  CHECK(dp.GradientPtr(1, 0) == nullptr);
  dp.Scatter(2);
  Says(dp.Replicate(), Code::kFailedPrecondition, "'late' was registered after Finalize()");
}

TEST_CASE("data parallel: what cannot be is refused by Finalize") {
  using Code = absl::StatusCode;
  float weights[2] = {};
  const auto finalize = [&](DataParallelOptions options, void* data, size_t count) {
    DataParallel dp(options);
    dp.AddParameter("weights", weights, 2, DType::kFloat32);
    dp.AddParameter("more", data, count, DType::kFloat32);
    const absl::Status status = dp.Finalize();
    CHECK(dp.GradientPtr(0, 0) == nullptr);
    return status;
  };
  Says(finalize({.replicas = 0}, weights, 2), Code::kInvalidArgument, "0 replicas");
  Says(finalize({.replicas = 1025}, weights, 2), Code::kInvalidArgument, "give 1 to 1024");
  Says(finalize({}, nullptr, 2), Code::kInvalidArgument, "'more' of 2 elements has no memory");
  Says(finalize({}, weights, SIZE_MAX / 4), Code::kInvalidArgument, "larger than memory can be");
  Says(finalize({}, weights, size_t{1} << 44), Code::kResourceExhausted, "1 replicas");
  DataParallel dp;
  dp.AddParameter("weights", weights, 2, DType::kFloat32);
  dp.AddParameter("weights", weights, 2, DType::kFloat32);
  Says(dp.Finalize(), Code::kInvalidArgument, "'weights' was registered twice");
}

}  // namespace
}  // namespace ddp
