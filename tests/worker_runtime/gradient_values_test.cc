// Norms and clipping against torch.nn.utils.clip_grad_norm_, and gradients that are no numbers.
#include "worker_runtime/gradient_values.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/comm/elements.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp {
namespace {

using ddprun::testing::ThreadGroup;
using internal::GradientValues;

constexpr size_t kCount = 3001;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> AsDoubles(DType dtype, const std::string& bytes) {
  const size_t count = bytes.size() / SizeOf(dtype);
  if (dtype == DType::kFloat64) {
    const double* values = reinterpret_cast<const double*>(bytes.data());
    return {values, values + count};
  }
  std::vector<float> values(count);
  internal::PortableKernels().load(dtype, bytes.data(), values.data(), count);
  return {values.begin(), values.end()};
}

internal::GradientArithmetic& OnHost() {
  static ThreadGroup& group = *new ThreadGroup(1);
  return internal::ArithmeticFor(group.communicator(0));
}

int64_t CountOf(const GradientValues& values) {
  return *OnHost().CountNonFinite({&values, 1}, nullptr);
}

// How far torch may be off: it computes the norm and the factor in the type of the gradients.
double Tolerance(DType dtype) {
  if (dtype == DType::kFloat64) return 1e-12;
  if (dtype == DType::kFloat32) return 2e-6;
  return dtype == DType::kFloat16 ? 4e-3 : 3e-2;
}

// Gradients of rank 0 in a group of one, of `types`, filled with what `bytes` has.
struct Clipped {
  Clipped(const std::vector<DType>& types, const std::vector<std::string>& bytes)
      : group(1), ddp(group.communicator(0)), types(types) {
    for (size_t i = 0; i < types.size(); ++i) {
      weights.push_back(bytes[i]);
      ddp.AddParameter(std::to_string(i), weights[i].data(), bytes[i].size() / SizeOf(types[i]),
                       types[i]);
    }
    REQUIRE(ddp.Finalize().ok());
    for (size_t i = 0; i < types.size(); ++i) {
      std::memcpy(ddp.GradientPtr(static_cast<int>(i)), bytes[i].data(), bytes[i].size());
    }
  }
  std::string Gradient(size_t i) {
    return {static_cast<const char*>(ddp.GradientPtr(static_cast<int>(i))), weights[i].size()};
  }
  ThreadGroup group;
  DistributedDataParallel ddp;
  std::vector<DType> types;
  std::vector<std::string> weights;
};

struct Case {
  std::vector<DType> types;
  double max_norm;
  double order;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (double order : {2.0, 1.0, 3.0, kInfinity}) {
      // The norms of half precision stay in its range.
      cases.push_back({{type}, 0.5, order});
      cases.push_back({{type}, 1e9, order});
    }
  }
  cases.push_back({{DType::kFloat32, DType::kFloat64}, 2.5, 2});
  cases.push_back({{DType::kFloat64, DType::kFloat32}, 2.5, kInfinity});
  return cases;
}

TEST_CASE("clipping: norms and gradients are torch's, for every type and order") {
  const auto& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  const ddprun::testing::TempDir folder;
  const std::vector<Case> cases = Cases();
  const auto input = [](DType type) {
    return testing::Inputs(type, 0, 0, SizeOf(type) == 2 ? 300 : kCount);
  };
  {
    std::ofstream script(folder.File("script"));
    for (const Case& one : cases) {
      for (size_t i = 0; i < one.types.size(); ++i) {
        std::ofstream(folder.File(Name(one.types[i]))) << input(one.types[i]);
        script << (i == 0 ? "" : ",") << Name(one.types[i]);
      }
      script << " " << one.max_norm << " " << one.order << "\n";
    }
  }
  ddprun::testing::Subprocess python(
      {torch.python, ddprun::testing::Runfile("tests/worker_runtime/torch_clip.py"),
       folder.path().string()});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  for (size_t number = 0; number < cases.size(); ++number) {
    const Case& one = cases[number];
    const std::string prefix = std::to_string(number) + ".";
    CAPTURE(number);
    std::vector<std::string> bytes;
    for (DType type : one.types) bytes.push_back(input(type));
    Clipped ours(one.types, bytes);
    const absl::StatusOr<double> norm = ours.ddp.ClipGradNorm(one.max_norm, one.order);
    REQUIRE_MESSAGE(norm.ok(), norm.status().message());
    const double tolerance = one.types.size() > 1 ? 2e-6 : Tolerance(one.types[0]);
    CHECK(*norm ==
          doctest::Approx(std::stod(ddprun::testing::ReadFile(folder.File(prefix + "norm"))))
              .epsilon(tolerance));
    for (size_t i = 0; i < one.types.size(); ++i) {
      const auto theirs = AsDoubles(
          one.types[i], ddprun::testing::ReadFile(folder.File(prefix + Name(one.types[i]))));
      const auto mine = AsDoubles(one.types[i], ours.Gradient(i));
      REQUIRE(mine.size() == theirs.size());
      size_t wrong = 0;
      for (size_t k = 0; k < mine.size(); ++k) {
        // The smallest halves are subnormal.
        const double error = std::fabs(mine[k] - theirs[k]);
        wrong += error <= tolerance * std::fabs(theirs[k]) + 1e-7 * tolerance ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("clipping: a norm that is small enough changes no bit") {
  const std::string bytes = testing::Inputs(DType::kFloat16, 0, 0, 100);
  Clipped ours({DType::kFloat16}, {bytes});
  CHECK(*ours.ddp.ClipGradNorm(1e6) > 0);
  CHECK(ours.Gradient(0) == bytes);
}

TEST_CASE("clipping: what is not finite makes NaN as in torch, or is refused") {
  const std::vector<float> values = {1, -std::numeric_limits<float>::infinity(), 3};
  const std::string bytes(reinterpret_cast<const char*>(values.data()), 12);
  for (const double order : {2.0, kInfinity}) {
    Clipped ours({DType::kFloat32}, {bytes});
    const auto refused = ours.ddp.ClipGradNorm(1, order, /*error_if_nonfinite=*/true);
    CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(ours.Gradient(0) == bytes);
    CHECK(*ours.ddp.ClipGradNorm(1, order) == kInfinity);
    const auto clipped = AsDoubles(DType::kFloat32, ours.Gradient(0));
    CHECK(clipped[0] == 0);
    CHECK(std::isnan(clipped[1]));
    CHECK(clipped[2] == 0);
    CHECK(std::isnan(*ours.ddp.ClipGradNorm(1, order)));
    CHECK(std::isnan(AsDoubles(DType::kFloat32, ours.Gradient(0))[0]));
  }
}

TEST_CASE("clipping: the largest is NaN wherever a NaN stands") {
  double numbers[] = {1, 2}, with_nan[] = {3, kNaN, 5};
  const GradientValues first{DType::kFloat64, numbers, 2}, second{DType::kFloat64, with_nan, 3};
  for (const auto& order : {std::vector{first, second}, std::vector{second, first}}) {
    CHECK(std::isnan(*OnHost().PartOfNorm(order, kInfinity, nullptr)));
  }
}

TEST_CASE("clipping: what cannot be clipped is refused in words") {
  Clipped ours({DType::kFloat32, DType::kFloat32}, {std::string(8, '\0'), std::string(4, '\0')});
  for (const double order : {0.0, -1.0, kNaN}) {
    CHECK(ours.ddp.ClipGradNorm(1, order).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(ours.ddp.ClipGradNorm(-1).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(*ours.ddp.ClipGradNorm(0) == 0);
  REQUIRE(ours.ddp.GradientReady(1).ok());
  CHECK(ours.ddp.ClipGradNorm(1).status().message() ==
        "ClipGradNorm in the middle of a backward pass: call Finish() first");
  CHECK_FALSE(ours.ddp.CountNonFinite().ok());

  Clipped whole({DType::kInt32}, {std::string(4, '\0')});
  CHECK(whole.ddp.ClipGradNorm(1).status().message() ==
        "ClipGradNorm: the gradient of '0' is int32, and only floating-point types can be scaled "
        "or not finite");
  float late = 0;
  ours.ddp.AddParameter("late", &late, 1, DType::kFloat32);
  CHECK(ours.ddp.ClipGradNorm(1).status().code() == absl::StatusCode::kFailedPrecondition);

  ThreadGroup group(1);
  DistributedDataParallel early(group.communicator(0));
  CHECK(early.ClipGradNorm(1).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(early.CountNonFinite().status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("not finite: NaN and infinities of every type are counted, and no others") {
  const std::vector<float> values = {0,
                                     -0.0f,
                                     1e-40f,
                                     65504,
                                     static_cast<float>(kNaN),
                                     static_cast<float>(kInfinity),
                                     -static_cast<float>(kInfinity)};
  std::vector<double> wide(values.begin(), values.end());
  CHECK(CountOf({DType::kFloat64, wide.data(), wide.size()}) == 3);
  for (DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    std::vector<float> narrow(values);
    internal::BestKernels().store(type, values.data(), narrow.data(), values.size(), 1);
    CHECK(CountOf({type, narrow.data(), values.size()}) == 3);
  }
}

// Loss scaling: one rank's overflow makes every rank skip the step and lower the scale.
TEST_CASE("not finite: after Finish all ranks count the same, before it a maximum tells all") {
  ThreadGroup group(2);
  size_t before[2] = {}, after[2] = {};
  float found_inf[2] = {};
  group.Run([&](Communicator& communicator) {
    const int rank = communicator.rank();
    float weights[5] = {};
    DistributedDataParallel ddp(communicator);
    ddp.AddParameter("w", weights, 5, DType::kFloat32);
    if (!ddp.Finalize().ok()) return;
    {
      const auto guard = ddp.NoSync();
      float* gradient = static_cast<float*>(ddp.GradientPtr(0));
      if (rank == 1) gradient[3] = std::numeric_limits<float>::infinity();
      if (!ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
    }
    before[rank] = ddp.CountNonFinite().value_or(99);
    found_inf[rank] = before[rank] > 0 ? 1.0f : 0.0f;
    if (!communicator.AllReduce(&found_inf[rank], 1, DType::kFloat32, ReduceOp::kMax)
             ->Wait()
             .ok()) {
      return;
    }
    if (!ddp.GradientReady(0).ok() || !ddp.Finish().ok()) return;
    after[rank] = ddp.CountNonFinite().value_or(99);
  });
  CHECK(before[0] == 0);
  CHECK(before[1] == 1);
  for (int rank : {0, 1}) {
    CHECK(found_inf[rank] == 1);
    CHECK(after[rank] == 1);
  }
}

}  // namespace
}  // namespace ddp
