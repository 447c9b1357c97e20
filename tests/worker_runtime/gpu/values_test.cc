#include "worker_runtime/gpu/values.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/emulated_cuda.h"
#include "tests/worker_runtime/gpu/emulated_kernels.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp::internal {
namespace {

using ddprun::testing::EmulatedCuda;
using ddprun::testing::EmulatedValues;

constexpr std::chrono::seconds kTimeout(60);
constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

CudaStream SomeStream() {
  static int stream;
  return reinterpret_cast<CudaStream>(&stream);
}

std::string Encode(DType type, const std::vector<float>& values) {
  std::string bytes(values.size() * SizeOf(type), '\0');
  if (values.empty()) return bytes;
  if (type == DType::kFloat64) {
    const std::vector<double> wide(values.begin(), values.end());
    std::memcpy(bytes.data(), wide.data(), bytes.size());
  } else {
    PortableKernels().store(type, values.data(), bytes.data(), values.size(), 1);
  }
  return bytes;
}

std::vector<float> Decode(DType type, const std::string& bytes) {
  std::vector<float> values(bytes.size() / SizeOf(type));
  if (values.empty()) return values;
  if (type == DType::kFloat64) {
    const auto* wide = reinterpret_cast<const double*>(bytes.data());
    return {wide, wide + values.size()};
  }
  PortableKernels().load(type, bytes.data(), values.data(), values.size());
  return values;
}

struct Loaded {
  Loaded() {
    auto made = Values::Load(cuda.api());
    REQUIRE_MESSAGE(made.ok(), made.status().ToString());
    values = *std::move(made);
  }
  // Of arrays one after the other.
  double Total(DType type, const std::vector<std::vector<float>>& arrays, ValueTerm term,
               double order = 0) {
    REQUIRE(values->Clear(SomeStream()).ok());
    for (const std::vector<float>& array : arrays) {
      const std::string bytes = Encode(type, array);
      REQUIRE(values
                  ->Add(type, bytes.data(), static_cast<int64_t>(array.size()), term, order,
                        SomeStream())
                  .ok());
    }
    const absl::StatusOr<double> total = values->Total(term, SomeStream(), kTimeout);
    REQUIRE_MESSAGE(total.ok(), total.status().ToString());
    return *total;
  }
  EmulatedCuda cuda{EmulatedValues()};
  std::unique_ptr<Values> values;
};

TEST_CASE("values: what is added up is exact where the numbers are, in each type") {
  Loaded gpu;
  for (const DType type : kFloats) {
    CAPTURE(std::string(Name(type)));
    const std::vector<std::vector<float>> arrays = {{3, -4}, {}, {-2}};
    CHECK(gpu.Total(type, arrays, ValueTerm::kSquare) == 29);
    CHECK(gpu.Total(type, arrays, ValueTerm::kMagnitude) == 9);
    CHECK(gpu.Total(type, arrays, ValueTerm::kPower, 3) == 99);
    CHECK(gpu.Total(type, arrays, ValueTerm::kLargest) == 4);
    CHECK(gpu.Total(type, arrays, ValueTerm::kNonFinite) == 0);
    CHECK(gpu.Total(type, {}, ValueTerm::kSquare) == 0);
  }
}

TEST_CASE("values: every element counts once, in arrays smaller and larger than the grid") {
  Loaded gpu;
  for (const size_t count : {size_t{1}, size_t{255}, size_t{257}, size_t{256 * 256 + 777}}) {
    CAPTURE(count);
    const std::vector<float> ones(count, 1);
    CHECK(gpu.Total(DType::kFloat32, {ones, {5}, ones}, ValueTerm::kMagnitude) ==
          static_cast<double>(2 * count + 5));
    for (const size_t at : {size_t{0}, count / 2, count - 1}) {
      std::vector<float> values = ones;
      values[at] = -7;
      CHECK(gpu.Total(DType::kFloat32, {values}, ValueTerm::kLargest) == 7);
    }
  }
}

TEST_CASE("values: NaN and infinity stay what they are, wherever they stand") {
  Loaded gpu;
  for (const DType type : kFloats) {
    CAPTURE(std::string(Name(type)));
    for (const size_t at : {size_t{0}, size_t{300}, size_t{69'999}}) {
      std::vector<float> values(70'000, 2);
      values[at] = kNaN;
      CHECK(std::isnan(gpu.Total(type, {values}, ValueTerm::kSquare)));
      CHECK(std::isnan(gpu.Total(type, {values, {1, 9}}, ValueTerm::kLargest)));
      CHECK(std::isnan(gpu.Total(type, {{1, 9}, values}, ValueTerm::kLargest)));
      values[at == 0 ? 1 : 0] = -kInfinity;
      CHECK(gpu.Total(type, {values}, ValueTerm::kNonFinite) == 2);
    }
    CHECK(gpu.Total(type, {{1, -kInfinity}}, ValueTerm::kLargest) == kInfinity);
    CHECK(gpu.Total(type, {{1, kInfinity}}, ValueTerm::kSquare) == kInfinity);
  }
}

TEST_CASE("values: scaling rounds as the CPU does, and writes nothing else") {
  Loaded gpu;
  const double factor = 1.0 / 3;
  for (const DType type : kFloats) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}}) {
      CAPTURE(std::string(Name(type)));
      std::vector<float> values;
      for (size_t i = 0; i < count + 3; ++i) values.push_back(static_cast<float>(i) * 0.37f - 5);
      std::string bytes = Encode(type, values);
      values = Decode(type, bytes);
      const std::string before = bytes;
      REQUIRE(
          gpu.values->Scale(type, bytes.data(), static_cast<int64_t>(count), factor, SomeStream())
              .ok());
      for (size_t i = 0; i < count; ++i) values[i] *= static_cast<float>(factor);
      if (type == DType::kFloat64) {
        const auto* was = reinterpret_cast<const double*>(before.data());
        const auto* is = reinterpret_cast<const double*>(bytes.data());
        for (size_t i = 0; i < count; ++i) CHECK(is[i] == was[i] * factor);
        CHECK(bytes.substr(count * 8) == before.substr(count * 8));
      } else {
        CHECK(bytes == Encode(type, values));
      }
    }
  }
}

}  // namespace
}  // namespace ddp::internal
