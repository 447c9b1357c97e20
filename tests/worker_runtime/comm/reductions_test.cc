// What the kernels make of several ranks' elements: against a plain reference, and against what
// torch.distributed makes of them.
#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/comm/elements.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp::testing {
namespace {

using internal::BestKernels;
using internal::Kernels;
using internal::PortableKernels;

constexpr size_t kCount = 3001;  // more than two blocks of Reduce()

TEST_CASE("kernels: every reduction of every type gives the plain reference's bytes") {
  constexpr int kRanks = 4;
  for (DType dtype : kAllTypes) {
    CAPTURE(std::string(Name(dtype)));
    for (ReduceOp op : kAllReductions) {
      if (!Goes(dtype, op)) continue;
      CAPTURE(std::string(Name(op)));
      for (int ranks = 1; ranks <= kRanks; ++ranks) {
        std::vector<std::string> inputs;
        std::vector<const void*> from;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(Inputs(dtype, rank, 0, kCount));
        }
        for (const std::string& input : inputs) from.push_back(input.data());
        for (const Kernels* kernels : {&BestKernels(), &PortableKernels()}) {
          std::string output(kCount * SizeOf(dtype), '\0');
          void* to = output.data();
          kernels->reduce(op, dtype, from.data(), ranks, &to, 1, kCount,
                          op == ReduceOp::kAverage ? ranks : 1);
          CHECK(output == Reduced(dtype, op, ranks, 0, kCount));
        }
      }
    }
  }
}

TEST_CASE("kernels: of two not-a-numbers the earlier is the maximum and the minimum") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(std::string(Name(dtype)));
    const size_t size = SizeOf(dtype);
    std::string first(64 * size, '\xff'), second(64 * size, '\xff');
    for (size_t i = 0; i < second.size(); i += size) second[i] = '\xfe';
    const std::string numbers = Inputs(dtype, 0, 0, 64);
    for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      for (const Kernels* kernels : {&BestKernels(), &PortableKernels()}) {
        const void* rows[][3] = {{numbers.data(), first.data(), second.data()},
                                 {first.data(), numbers.data(), second.data()},
                                 {first.data(), second.data(), numbers.data()}};
        for (const auto& inputs : rows) {
          std::string output(first.size(), '\0');
          void* to = output.data();
          kernels->reduce(op, dtype, inputs, 3, &to, 1, 64, 1);
          CHECK(output == first);
        }
      }
    }
  }
}

TEST_CASE("kernels: integers wrap, and their averages round toward zero") {
  for (const Kernels* kernels : {&BestKernels(), &PortableKernels()}) {
    CAPTURE(std::string(kernels->name));
    const int32_t a[] = {2147483647, -7, 7}, b[] = {1, 0, 0};
    int32_t sum[3], average[3];
    const void* inputs[] = {a, b};
    void* sums[] = {sum};
    void* averages[] = {average};
    kernels->reduce(ReduceOp::kSum, DType::kInt32, inputs, 2, sums, 1, 3, 1);
    CHECK(sum[0] == std::numeric_limits<int32_t>::min());
    kernels->reduce(ReduceOp::kAverage, DType::kInt32, inputs, 2, averages, 1, 3, 2);
    CHECK(average[1] == -3);
    CHECK(average[2] == 3);
    const uint8_t c[] = {250, 200}, d[] = {10, 100};
    uint8_t bytes[2];
    const void* byte_inputs[] = {c, d};
    void* byte_outputs[] = {bytes};
    kernels->reduce(ReduceOp::kAverage, DType::kUint8, byte_inputs, 2, byte_outputs, 1, 2, 2);
    CHECK(static_cast<int>(bytes[0]) == 130);
    CHECK(static_cast<int>(bytes[1]) == 150);
    kernels->reduce(ReduceOp::kSum, DType::kUint8, byte_inputs, 2, byte_outputs, 1, 2, 1);
    CHECK(static_cast<int>(bytes[0]) == 260 - 256);
    CHECK(static_cast<int>(bytes[1]) == 300 - 256);
  }
}

// Two ranks: with more, gloo has another order than ours, and halves are rounded after each step.
TEST_CASE("kernels: sum, max, min and product are torch.distributed's") {
  const auto& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  const ddprun::testing::TempDir folder;
  for (DType dtype : kAllTypes) {
    for (int rank : {0, 1}) {
      std::ofstream(folder.File(std::string(Name(dtype)) + "." + std::to_string(rank)))
          << Inputs(dtype, rank, 0, kCount);
    }
  }
  ddprun::testing::Subprocess python(
      {torch.python, ddprun::testing::Runfile("tests/worker_runtime/comm/torch_reductions.py"),
       folder.path().string()});
  REQUIRE_MESSAGE(python.Wait() == 0, python.Describe());
  for (DType dtype : kAllTypes) {
    CAPTURE(std::string(Name(dtype)));
    for (ReduceOp op : kAllReductions) {
      if (op == ReduceOp::kAverage || !Goes(dtype, op)) continue;  // gloo has no average
      CAPTURE(std::string(Name(op)));
      const std::string first = Inputs(dtype, 0, 0, kCount), second = Inputs(dtype, 1, 0, kCount);
      const void* inputs[] = {first.data(), second.data()};
      std::string output(first.size(), '\0');
      void* to = output.data();
      BestKernels().reduce(op, dtype, inputs, 2, &to, 1, kCount, 1);
      CHECK(output ==
            ddprun::testing::ReadFile(folder.File(std::string(Name(dtype)) + "." + Name(op))));
    }
  }
}

}  // namespace
}  // namespace ddp::testing
