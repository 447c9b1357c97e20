// The variant this processor runs against the one every processor runs, byte for byte; and both
// against plain references.
#include "worker_runtime/comm/kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/skip.h"
#include "tests/worker_runtime/comm/elements.h"

namespace ddp::testing {
namespace {

using ddprun::testing::SkipTest;
using internal::AccumulatorSize;
using internal::BestKernels;
using internal::Kernels;
using internal::PortableKernels;

// Around the width of every vector, around a block of Reduce(), and more than two blocks.
constexpr size_t kCounts[] = {0,  1,  2,  3,   5,   7,    8,    9,    15,   16,   17,  31,
                              32, 33, 63, 127, 255, 1000, 1023, 1024, 1025, 2047, 3001};
constexpr size_t kMaxCount = 3001;
constexpr size_t kGuard = 64;  // bytes after the result that must not change

// Bytes at an address `offset` past an aligned one, with a guard behind.
class Place {
 public:
  Place(size_t bytes, size_t offset) : storage_(bytes + 2 * kGuard, '\x5a'), bytes_(bytes) {
    const size_t address = reinterpret_cast<size_t>(storage_.data());
    start_ = (kGuard - address % kGuard) % kGuard + offset % kGuard;
    if (start_ + bytes > storage_.size() - 1) storage_.resize(start_ + bytes + kGuard, '\x5a');
  }
  Place(const std::string& bytes, size_t offset) : Place(bytes.size(), offset) {
    std::memcpy(data(), bytes.data(), bytes.size());
  }
  char* data() { return storage_.data() + start_; }
  std::string bytes() const { return storage_.substr(start_, bytes_); }
  std::string outside() const {
    return storage_.substr(0, start_) + storage_.substr(start_ + bytes_);
  }

 private:
  std::string storage_;
  const size_t bytes_;
  size_t start_ = 0;
};

bool IsUntouched(const std::string& bytes) {
  return bytes.find_first_not_of('\x5a') == std::string::npos;
}

// Any bits, infinities and subnormal numbers included; NaN only where asked for, since the sum of
// two NaNs may be either.
std::string AnyBits(DType dtype, uint64_t seed, size_t count) {
  const size_t size = SizeOf(dtype);
  std::string bytes(count * size, '\0');
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = Mix(seed * 7'919'777 + i);
    const bool is_nan =
        (dtype == DType::kFloat16 && (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0) ||
        (dtype == DType::kBFloat16 && (bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0) ||
        (dtype == DType::kFloat32 && (bits & 0x7f800000) == 0x7f800000 && (bits & 0x7fffff) != 0) ||
        (dtype == DType::kFloat64 && (bits & 0x7ff0000000000000) == 0x7ff0000000000000 &&
         (bits & 0xfffffffffffff) != 0);
    if (is_nan) bits = i;
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

// With divisors that no world size of a test is.
constexpr std::pair<ReduceOp, int> kCombinations[] = {
    {ReduceOp::kSum, 1},       {ReduceOp::kAverage, 2}, {ReduceOp::kAverage, 3},
    {ReduceOp::kAverage, 300}, {ReduceOp::kMax, 1},     {ReduceOp::kMin, 1},
    {ReduceOp::kProduct, 1}};

// Offsets that are odd, and different for each array of a call.
constexpr size_t kOffsets[] = {0, 1, 2, 3, 4, 7, 8, 13, 31};

struct Results {
  std::string accumulator;
  std::string output;
  friend bool operator==(const Results&, const Results&) = default;
};

Results LoadCombineStore(const Kernels& kernels, ReduceOp op, DType dtype, size_t count,
                         size_t offset, int divisor) {
  Place first(AnyBits(dtype, 1, count), offset);
  Place second(AnyBits(dtype, 2, count), offset + 1);
  Place accumulator(count * AccumulatorSize(dtype), offset + 3);
  Place output(count * SizeOf(dtype), offset + 5);
  kernels.load(dtype, first.data(), accumulator.data(), count);
  kernels.combine(op, dtype, second.data(), accumulator.data(), count);
  kernels.store(dtype, accumulator.data(), output.data(), count, divisor);
  CHECK(IsUntouched(accumulator.outside()));
  CHECK(IsUntouched(output.outside()));
  return {accumulator.bytes(), output.bytes()};
}

TEST_CASE("kernels: load, combine and store give the same bytes in both variants") {
  const Kernels& best = BestKernels();
  if (&best == &PortableKernels()) return SkipTest("this processor has no AVX2 and F16C");
  CHECK(std::string(best.name) != PortableKernels().name);
  for (DType dtype : kAllTypes) {
    CAPTURE(std::string(Name(dtype)));
    for (size_t count : kCounts) {
      for (size_t offset : kOffsets) {
        for (auto [op, divisor] : kCombinations) {
          CAPTURE(count);
          CAPTURE(offset);
          CAPTURE(divisor);
          CAPTURE(std::string(Name(op)));
          CHECK(LoadCombineStore(best, op, dtype, count, offset, divisor) ==
                LoadCombineStore(PortableKernels(), op, dtype, count, offset, divisor));
        }
      }
    }
  }
}

// `in_place`: the outputs are the inputs themselves, as for memory that ranks share.
std::vector<std::string> ReducedBy(const Kernels& kernels, ReduceOp op, DType dtype, size_t count,
                                   size_t offset, int ranks, int divisor, bool in_place) {
  std::vector<Place> inputs, outputs;
  for (int rank = 0; rank < ranks; ++rank) {
    const size_t shift = offset + static_cast<size_t>(rank);
    inputs.emplace_back(AnyBits(dtype, static_cast<uint64_t>(rank), count), shift);
    outputs.emplace_back(count * SizeOf(dtype), shift + 1);
  }
  std::vector<const void*> from;
  std::vector<void*> to;
  std::vector<Place>& results = in_place ? inputs : outputs;
  for (Place& input : inputs) from.push_back(input.data());
  for (Place& result : results) to.push_back(result.data());
  kernels.reduce(op, dtype, from.data(), ranks, to.data(), ranks, count, divisor);
  std::vector<std::string> bytes;
  for (const Place& result : results) {
    CHECK(IsUntouched(result.outside()));
    bytes.push_back(result.bytes());
  }
  return bytes;
}

TEST_CASE(
    "kernels: reduce gives every rank the bytes of load, combine and store, in both variants") {
  for (DType dtype : kAllTypes) {
    CAPTURE(std::string(Name(dtype)));
    for (int ranks : {1, 2, 3, 5}) {
      for (size_t count : kCounts) {
        for (ReduceOp op : kAllReductions) {
          if (!Goes(dtype, op)) continue;
          const int divisor = op == ReduceOp::kAverage ? ranks : 1;
          CAPTURE(ranks);
          CAPTURE(count);
          CAPTURE(std::string(Name(op)));
          std::string accumulator(count * AccumulatorSize(dtype), '\0');
          std::string expected(count * SizeOf(dtype), '\0');
          const Kernels& portable = PortableKernels();
          for (int rank = 0; rank < ranks; ++rank) {
            const std::string input = AnyBits(dtype, static_cast<uint64_t>(rank), count);
            if (rank == 0) {
              portable.load(dtype, input.data(), accumulator.data(), count);
            } else {
              portable.combine(op, dtype, input.data(), accumulator.data(), count);
            }
          }
          portable.store(dtype, accumulator.data(), expected.data(), count, divisor);
          for (const Kernels* kernels : {&BestKernels(), &portable}) {
            for (bool in_place : {false, true}) {
              for (size_t offset : {size_t{0}, size_t{1}, size_t{6}}) {
                for (const std::string& bytes :
                     ReducedBy(*kernels, op, dtype, count, offset, ranks, divisor, in_place)) {
                  CHECK(bytes == expected);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("kernels: one not-a-number stays one, with the same bits in both variants") {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    CAPTURE(std::string(Name(dtype)));
    std::string nan(64 * SizeOf(dtype), '\xff'), ones;
    for (size_t i = 0; i < 64; ++i) ones += AnyBits(dtype, 0, 1);
    for (bool is_first : {true, false}) {
      std::string results[2];
      const Kernels* variants[] = {&BestKernels(), &PortableKernels()};
      for (int k = 0; k < 2; ++k) {
        std::string accumulator(64 * AccumulatorSize(dtype), '\0');
        results[k].resize(nan.size());
        variants[k]->load(dtype, (is_first ? nan : ones).data(), accumulator.data(), 64);
        variants[k]->combine(ReduceOp::kSum, dtype, (is_first ? ones : nan).data(),
                             accumulator.data(), 64);
        variants[k]->store(dtype, accumulator.data(), results[k].data(), 64, 2);
      }
      CHECK(results[0] == results[1]);
      CHECK(results[0] == nan);
    }
  }
}

// The reference: a 16-bit float from its three fields, exactly, as a double.
struct Format {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
};
constexpr Format kFormats[] = {{DType::kFloat16, 5, 10}, {DType::kBFloat16, 8, 7}};

double ValueOf(const Format& format, uint32_t half) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int top = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(half >> format.mantissa_bits) & top;
  const int mantissa = static_cast<int>(half & ((1u << format.mantissa_bits) - 1));
  double value;
  if (exponent == top) {
    value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  } else {
    value =
        std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - bias - format.mantissa_bits);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

std::vector<uint16_t> Narrowed(const Kernels& kernels, DType dtype,
                               const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  kernels.store(dtype, values.data(), halves.data(), values.size(), 1);
  return halves;
}

template <typename Body>
void ForEachFormatAndVariant(Body body) {
  for (const Format& format : kFormats) {
    for (const Kernels* kernels : {&BestKernels(), &PortableKernels()}) {
      CAPTURE(std::string(Name(format.dtype)));
      CAPTURE(std::string(kernels->name));
      body(format, *kernels);
    }
  }
}

TEST_CASE("kernels: each of the 65,536 half floats widens to its value and comes back") {
  ForEachFormatAndVariant([](const Format& format, const Kernels& kernels) {
    const std::vector<uint16_t> all = AllHalves();
    std::vector<float> wide(all.size());
    kernels.load(format.dtype, all.data(), wide.data(), all.size());
    const std::vector<uint16_t> back = Narrowed(kernels, format.dtype, wide);
    const uint16_t quiet = static_cast<uint16_t>(1u << (format.mantissa_bits - 1));
    int wrong = 0;
    for (uint32_t half = 0; half < all.size() && wrong < 10; ++half) {
      const double expected = ValueOf(format, half);
      const bool is_nan = std::isnan(expected);
      const bool is_right = is_nan ? std::isnan(wide[half]) : wide[half] == expected;
      // A NaN comes back quiet, with its sign and payload.
      const uint32_t expected_back = is_nan ? half | quiet : half;
      if (is_right && std::signbit(wide[half]) == std::signbit(expected) &&
          back[half] == expected_back) {
        continue;
      }
      ++wrong;
      CAPTURE(half);
      CHECK(wide[half] == expected);
      CHECK(back[half] == expected_back);
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("kernels: between each two half floats rounding is to the nearest, ties to even") {
  ForEachFormatAndVariant([](const Format& format, const Kernels& kernels) {
    const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
    std::vector<float> values;
    std::vector<uint16_t> expected;
    for (uint32_t low = 0; low < infinity; ++low) {
      // Above the largest half the next one would be a power of two; from half way on: infinity.
      const double down = ValueOf(format, low);
      const double up =
          low + 1 < infinity ? ValueOf(format, low + 1) : 2 * down - ValueOf(format, low - 1);
      const float middle = static_cast<float>((down + up) / 2);
      for (float value : {std::nextafterf(middle, 0.0f), middle,
                          std::nextafterf(middle, std::numeric_limits<float>::infinity())}) {
        const bool is_up = value > middle || (value == middle && low % 2 == 1);
        values.push_back(value);
        expected.push_back(static_cast<uint16_t>(low + (is_up ? 1 : 0)));
        values.push_back(-value);
        expected.push_back(static_cast<uint16_t>(0x8000 | expected.back()));
      }
    }
    const std::vector<uint16_t> halves = Narrowed(kernels, format.dtype, values);
    int wrong = 0;
    for (size_t i = 0; i < values.size() && wrong < 10; ++i) {
      if (halves[i] == expected[i]) continue;
      ++wrong;
      CAPTURE(values[i]);
      CHECK(halves[i] == expected[i]);
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("kernels: floats beyond every half become infinity") {
  ForEachFormatAndVariant([](const Format& format, const Kernels& kernels) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float beyond = format.dtype == DType::kFloat16 ? 65520.0f : 3.3961775e38f;
    std::vector<float> values(9, beyond);  // one vector and a rest
    values[1] = values[8] = infinity;
    const uint16_t bits = format.dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
    CHECK(Narrowed(kernels, format.dtype, values) == std::vector<uint16_t>(9, bits));
  });
}

}  // namespace
}  // namespace ddp::testing
