#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tools/gpu_check_program/rank.h"
#include "tools/gpu_check_program/rank_commands.h"

namespace ddprun::gpu_check {
namespace {

using ddp::DType;
using ddp::ReduceOp;

constexpr size_t kCount = 100'003;  // no multiple of anything

template <typename T>
void Put(char* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}
template <typename T>
T Get(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// A whole number from 0 to 255, which every type has.
void Encode(DType dtype, double value, char* to) {
  switch (dtype) {
    case DType::kFloat32:
      return Put(to, static_cast<float>(value));
    case DType::kFloat64:
      return Put(to, value);
    case DType::kFloat16: {
      int exponent = 0;
      const double fraction = std::frexp(value, &exponent);  // value = fraction * 2^exponent
      const int bits = static_cast<int>(fraction * 2048) - 1024 + ((exponent + 14) << 10);
      return Put(to, static_cast<uint16_t>(value == 0 ? 0 : bits));
    }
    case DType::kBFloat16: {
      const float wide = static_cast<float>(value);
      return std::memcpy(to, reinterpret_cast<const char*>(&wide) + 2, 2), void();
    }
    case DType::kInt32:
      return Put(to, static_cast<int32_t>(value));
    case DType::kInt64:
      return Put(to, static_cast<int64_t>(value));
    case DType::kUint8:
      return Put(to, static_cast<uint8_t>(value));
    case DType::kInt8:
      return Put(to, static_cast<int8_t>(value));
  }
}

double Decode(DType dtype, const char* from) {
  switch (dtype) {
    case DType::kFloat32:
      return Get<float>(from);
    case DType::kFloat64:
      return Get<double>(from);
    case DType::kFloat16: {
      const int bits = Get<uint16_t>(from);
      return bits == 0 ? 0 : std::ldexp((bits & 1023) + 1024, (bits >> 10) - 25);
    }
    case DType::kBFloat16: {
      char wide[4] = {0, 0, from[0], from[1]};
      return Get<float>(wide);
    }
    case DType::kInt32:
      return Get<int32_t>(from);
    case DType::kInt64:
      return static_cast<double>(Get<int64_t>(from));
    case DType::kUint8:
      return Get<uint8_t>(from);
    case DType::kInt8:
      return Get<int8_t>(from);
  }
  return 0;
}

bool IsInteger(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kUint8 ||
         dtype == DType::kInt8;
}

// Rank r gives element i as i % 7 + r: sums stay below 128 on up to 10 ranks. The factors of a
// product are 1 and 2 in turns over the ranks: it does so on up to 12.
double Given(ReduceOp op, size_t i, int rank) {
  const double place = static_cast<double>(i % 7) + rank;
  return op == ReduceOp::kProduct ? 1 + std::fmod(place, 2) : place;
}

double Expected(DType dtype, ReduceOp op, size_t i, int ranks) {
  double sum = 0, product = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += Given(op, i, rank);
    product *= Given(op, i, rank);
  }
  switch (op) {
    case ReduceOp::kSum:
      return sum;
    case ReduceOp::kAverage:
      return IsInteger(dtype) ? std::floor(sum / ranks) : sum / ranks;
    case ReduceOp::kMax:
      return Given(op, i, ranks - 1);
    case ReduceOp::kMin:
      return Given(op, i, 0);
    case ReduceOp::kProduct:
      return product;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;  // NCCL has none
  }
  return 0;
}

void CheckOne(ddp::ProcessGroup& group, Gpu& gpu, void* memory, DType dtype, ReduceOp op) {
  const size_t size = ddp::SizeOf(dtype);
  std::vector<char> values(kCount * size);
  for (size_t i = 0; i < kCount; ++i) {
    Encode(dtype, Given(op, i, group.rank()), &values[i * size]);
  }
  gpu.Write(memory, values.data(), values.size());
  const std::string what = absl::StrCat(ddp::Name(op), " of ", ddp::Name(dtype));
  auto work = group.communicator().AllReduce(memory, kCount, dtype, op, gpu.stream());
  MustBeOk(what, work->WaitOn(gpu.stream()));
  gpu.Read(values.data(), memory, values.size());
  MustBeOk(what, work->Wait());
  for (size_t i = 0; i < kCount; ++i) {
    const double got = Decode(dtype, &values[i * size]);
    const double expected = Expected(dtype, op, i, group.world_size());
    // Only an average by a number that is no power of two is rounded.
    const double tolerance = op == ReduceOp::kAverage && !IsInteger(dtype) ? 0.01 * expected : 0;
    if (std::abs(got - expected) <= tolerance) continue;
    MustBeOk(what, absl::InternalError(absl::StrCat("rank ", group.rank(), ", element ", i,
                                                    ": expected ", expected, ", got ", got)));
  }
}

}  // namespace

int Sums(const Arguments&) {
  const auto group = JoinGroup(ddp::Backend::kNccl);
  Gpu gpu(group->gpu());
  void* const memory = gpu.Allocate(kCount * 8);
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                      DType::kInt32, DType::kInt64, DType::kUint8, DType::kInt8}) {
    for (ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
      CheckOne(*group, gpu, memory, dtype, op);
    }
  }
  MustBeOk("shut down", group->Shutdown());
  if (group->rank() == 0) PrintValue("ranks", group->world_size());
  return EXIT_SUCCESS;
}

}  // namespace ddprun::gpu_check
