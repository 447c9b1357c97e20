// Collectives of the double: what they compute, between threads and between processes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/gpu_double/double_api.h"
#include "tests/gpu_double/reduce.h"

namespace ddprun::gpu_double {
namespace {

constexpr NcclDataType kTypes[] = {kNcclUint8,   kNcclInt32,   kNcclInt64,   kNcclFloat16,
                                   kNcclFloat32, kNcclFloat64, kNcclBfloat16};

// `values` as elements of `type`.
std::string Encode(const std::vector<double>& values, NcclDataType type) {
  std::string bytes;
  const auto append = [&bytes](auto element) {
    bytes.append(reinterpret_cast<const char*>(&element), sizeof element);
  };
  for (const double value : values) {
    if (type == kNcclUint8) append(static_cast<uint8_t>(value));
    if (type == kNcclInt32) append(static_cast<int32_t>(value));
    if (type == kNcclInt64) append(static_cast<int64_t>(value));
    if (type == kNcclFloat16) append(FloatToHalf(static_cast<float>(value)));
    if (type == kNcclBfloat16) append(FloatToBfloat16(static_cast<float>(value)));
    if (type == kNcclFloat32) append(static_cast<float>(value));
    if (type == kNcclFloat64) append(value);
  }
  return bytes;
}

// Small numbers, so that every type holds the sums; a different one for each rank and place.
double Input(int rank, size_t place) { return static_cast<double>((place * 3 + 4 * rank) % 24); }

std::vector<double> Inputs(int rank, size_t begin, size_t end) {
  std::vector<double> values;
  for (size_t place = begin; place < end; ++place) values.push_back(Input(rank, place));
  return values;
}

std::vector<double> Sums(int world_size, size_t begin, size_t end, double divisor) {
  std::vector<double> sums;
  for (size_t place = begin; place < end; ++place) {
    double sum = 0;
    for (int rank = 0; rank < world_size; ++rank) sum += Input(rank, place);
    sums.push_back(sum / divisor);
  }
  return sums;
}

std::vector<double> Combined(int world_size, size_t end, NcclRedOp op) {
  std::vector<double> results;
  for (size_t place = 0; place < end; ++place) {
    double all = Input(0, place);
    for (int rank = 1; rank < world_size; ++rank) {
      const double next = Input(rank, place);
      all = op == kNcclMax   ? std::max(all, next)
            : op == kNcclMin ? std::min(all, next)
                             : all * next;
    }
    results.push_back(all);
  }
  return results;
}

// All collectives of one type; empty, or what was wrong.
std::string CheckCollectives(NcclComm comm, int world_size, int rank, size_t count,
                             NcclDataType type) {
  const DoubleApi& api = Api();
  const size_t ranks = static_cast<size_t>(world_size);
  TestStream stream;
  const DeviceBuffer mine(Encode(Inputs(rank, 0, count), type));
  const DeviceBuffer all(Encode(Inputs(rank, 0, count * ranks), type));
  const DeviceBuffer sum(count * SizeOf(type)), average(count * SizeOf(type)),
      from_last(count * SizeOf(type)), gathered(count * ranks * SizeOf(type)),
      part(count * SizeOf(type));
  const auto call = [&](const char* name, NcclResult result) {
    return result == kNcclSuccess ? "" : std::string(name) + " refused; ";
  };
  std::string wrong;
  wrong += call("allreduce", api.ncclAllReduce(mine.pointer(), sum.pointer(), count, type, kNcclSum,
                                               comm, stream.get()));
  wrong += call("average", api.ncclAllReduce(mine.pointer(), average.pointer(), count, type,
                                             kNcclAvg, comm, stream.get()));
  wrong += call("broadcast", api.ncclBroadcast(mine.pointer(), from_last.pointer(), count, type,
                                               world_size - 1, comm, stream.get()));
  wrong += call("allgather", api.ncclAllGather(mine.pointer(), gathered.pointer(), count, type,
                                               comm, stream.get()));
  wrong += call("reducescatter", api.ncclReduceScatter(all.pointer(), part.pointer(), count, type,
                                                       kNcclSum, comm, stream.get()));
  if (!wrong.empty()) return wrong + api.ncclGetLastError(comm);
  stream.Synchronize();
  const size_t first = static_cast<size_t>(rank) * count;
  if (sum.Read() != Encode(Sums(world_size, 0, count, 1), type)) wrong += "sum ";
  if (average.Read() != Encode(Sums(world_size, 0, count, world_size), type)) wrong += "average ";
  for (const NcclRedOp op : {kNcclMax, kNcclMin, kNcclProd}) {
    // Products of two ranks fit every type but bytes, which wrap; of more the last bits would
    // differ.
    if (op == kNcclProd && (world_size > 2 || type == kNcclUint8)) continue;
    const DeviceBuffer result(count * SizeOf(type));
    wrong += call("reduction", api.ncclAllReduce(mine.pointer(), result.pointer(), count, type, op,
                                                 comm, stream.get()));
    stream.Synchronize();
    if (result.Read() != Encode(Combined(world_size, count, op), type)) {
      wrong += "reduction " + std::to_string(op) + " ";
    }
  }
  if (from_last.Read() != Encode(Inputs(world_size - 1, 0, count), type)) wrong += "broadcast ";
  if (part.Read() != Encode(Sums(world_size, first, first + count, 1), type)) wrong += "part ";
  std::string expected;
  for (int peer = 0; peer < world_size; ++peer) expected += Encode(Inputs(peer, 0, count), type);
  if (gathered.Read() != expected) wrong += "gathered ";
  return wrong;
}

}  // namespace

TEST_CASE("processes: two compute every collective of every type") {
  const NcclUniqueId id = NewId();
  const auto codes = RunRankProcesses(2, [&](int rank) {
    UseDevice(rank);
    TestComm comm(id, 2, rank);
    if (comm.joined() != kNcclSuccess) return 2;
    for (const NcclDataType type : kTypes) {
      if (!CheckCollectives(comm.get(), 2, rank, 1000, type).empty()) return 3;
    }
    return comm.End() == kNcclSuccess ? 0 : 4;
  });
  CHECK(codes == std::vector<int>{0, 0});
}

TEST_CASE("threads: four compute every collective of every type, in several chunks too") {
  const NcclUniqueId id = NewId();
  RunRanks(4, [&](int rank) {
    TestComm comm(id, 4, rank);
    for (const NcclDataType type : kTypes) {
      CAPTURE(NameOf(type));
      CHECK(CheckCollectives(comm.get(), 4, rank, 24, type) == "");
      CHECK(CheckCollectives(comm.get(), 4, rank, 66'001, type) == "");
    }
    CHECK(comm.End() == kNcclSuccess);
  });
}

TEST_CASE("group: sends and receives in any order meet; long messages come whole") {
  constexpr size_t kCount = 50'000;
  const NcclUniqueId id = NewId();
  RunRanks(3, [&](int rank) {
    const DoubleApi& api = Api();
    TestComm comm(id, 3, rank);
    TestStream stream;
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    const DeviceBuffer out(Encode(Inputs(rank, 0, kCount), kNcclFloat32));
    const DeviceBuffer in(kCount * 4), back(kCount * 4);
    CHECK(api.ncclGroupStart() == kNcclSuccess);
    CHECK(api.ncclSend(out.pointer(), kCount, kNcclFloat32, next, comm.get(), stream.get()) ==
          kNcclSuccess);
    CHECK(api.ncclSend(out.pointer(), kCount, kNcclFloat32, previous, comm.get(), stream.get()) ==
          kNcclSuccess);
    CHECK(api.ncclRecv(in.pointer(), kCount, kNcclFloat32, previous, comm.get(), stream.get()) ==
          kNcclSuccess);
    CHECK(api.ncclRecv(back.pointer(), kCount, kNcclFloat32, next, comm.get(), stream.get()) ==
          kNcclSuccess);
    CHECK(api.ncclGroupEnd() == kNcclSuccess);
    CHECK(stream.Synchronize() == kCudaSuccess);
    CHECK(in.Read() == Encode(Inputs(previous, 0, kCount), kNcclFloat32));
    CHECK(back.Read() == Encode(Inputs(next, 0, kCount), kNcclFloat32));
    CHECK(comm.End() == kNcclSuccess);
  });
}

TEST_CASE("allreduce: in place, and of nothing") {
  const NcclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    TestComm comm(id, 2, rank);
    TestStream stream;
    const DeviceBuffer buffer(Encode(Inputs(rank, 0, 10), kNcclFloat32));
    CHECK(Api().ncclAllReduce(nullptr, nullptr, 0, kNcclFloat32, kNcclSum, comm.get(),
                              stream.get()) == kNcclSuccess);
    CHECK(Api().ncclAllReduce(buffer.pointer(), buffer.pointer(), 10, kNcclFloat32, kNcclSum,
                              comm.get(), stream.get()) == kNcclSuccess);
    stream.Synchronize();
    CHECK(buffer.Read() == Encode(Sums(2, 0, 10, 1), kNcclFloat32));
    CHECK(comm.End() == kNcclSuccess);
  });
}

TEST_CASE("streams: operations of one communicator run in the order of the calls on any stream") {
  const NcclUniqueId id = NewId();
  RunRanks(2, [&](int rank) {
    TestComm comm(id, 2, rank);
    TestStream first, second;
    const DeviceBuffer small(Encode(Inputs(rank, 0, 10), kNcclFloat32));
    const DeviceBuffer large(Encode(Inputs(rank, 0, 10), kNcclFloat64));
    for (int turn = 0; turn < 20; ++turn) {
      CHECK(Api().ncclAllReduce(small.pointer(), small.pointer(), 10, kNcclFloat32, kNcclAvg,
                                comm.get(), first.get()) == kNcclSuccess);
      CHECK(Api().ncclAllReduce(large.pointer(), large.pointer(), 10, kNcclFloat64, kNcclAvg,
                                comm.get(), second.get()) == kNcclSuccess);
    }
    first.Synchronize();
    second.Synchronize();
    CHECK(small.Read() == Encode(Sums(2, 0, 10, 2), kNcclFloat32));
    CHECK(comm.End() == kNcclSuccess);
  });
}

TEST_CASE("half types: every float16 keeps its bits; rounding is to even") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    const float brain = Bfloat16ToFloat(half);
    if (!std::isnan(value) && FloatToHalf(value) != half) FAIL("float16 ", bits);
    if (!std::isnan(brain) && FloatToBfloat16(brain) != half) FAIL("bfloat16 ", bits);
  }
  CHECK(FloatToHalf(2049.0f) == FloatToHalf(2048.0f));
  CHECK(FloatToHalf(2051.0f) == FloatToHalf(2052.0f));
  CHECK(FloatToHalf(65519.0f) == 0x7bff);
  CHECK(FloatToHalf(65520.0f) == 0x7c00);
  CHECK(FloatToHalf(2.98023224e-8f) == 0);
  CHECK(FloatToBfloat16(257.0f) == FloatToBfloat16(256.0f));
  CHECK(std::isnan(HalfToFloat(FloatToHalf(NAN))));
  CHECK(std::isnan(Bfloat16ToFloat(FloatToBfloat16(NAN))));
}

}  // namespace ddprun::gpu_double
