#include "worker_runtime/comm/nccl/call_comparison.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/op_record.h"

namespace ddp::internal {
namespace {

// From calls 8^1 to 8^21 on, which is all that 64 bits count.
constexpr int kBitsOfStep = 3;
constexpr size_t kComparisons = 22;

size_t IndexOf(uint64_t sequence) {
  return static_cast<size_t>((std::bit_width(sequence) - 1) / kBitsOfStep);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallComparison>> CallComparison::Create(const Device& device,
                                                                       int world_size) {
  std::unique_ptr<CallComparison> made(new CallComparison(device, world_size));
  const CudaApi& api = device.api();
  const size_t on_host = (static_cast<size_t>(world_size) + kComparisons) * sizeof(uint64_t);
  const size_t on_device = (static_cast<size_t>(world_size) + 1) * sizeof(uint64_t);
  void* host = nullptr;
  CudaResult result = api.cuMemAllocHost(&host, on_host);
  if (result != kCudaSuccess) {
    return CudaStatus(api, absl::StrCat("cuMemAllocHost of ", on_host, " bytes").c_str(), result);
  }
  made->host_ = static_cast<uint64_t*>(host);
  result = api.cuMemAlloc(&made->gathered_, on_device);
  if (result == kCudaSuccess) return made;
  api.cuMemFreeHost(host);
  return CudaStatus(api, absl::StrCat("cuMemAlloc of ", on_device, " bytes").c_str(), result);
}

void CallComparison::Release(Device::Memory& memory) {
  memory.on_device.push_back(gathered_);
  memory.pinned.push_back(host_);
}

bool CallComparison::Add(const Op& op, bool is_captured) {
  const OpRecord record = SharedRecordOf(op);
  calls_.Add(&record, sizeof(record));
  for (const Piece& piece : op.pieces) calls_.Add(&piece.count, sizeof(piece.count));
  if (op.sequence < next_ || is_captured) return false;
  const size_t index = IndexOf(op.sequence);
  next_ = index + 1 < kComparisons ? uint64_t{1} << (kBitsOfStep * (index + 1)) : UINT64_MAX;
  newest_ = op.sequence;
  host_[static_cast<size_t>(world_size_) + index] = calls_.value();
  return true;
}

absl::Status CallComparison::Upload(uint64_t sequence, CudaStream stream) const {
  const size_t ranks = static_cast<size_t>(world_size_);
  return CudaStatus(
      device_.api(), "cuMemcpyHtoDAsync",
      device_.api().cuMemcpyHtoDAsync(gathered_ + ranks * sizeof(uint64_t),
                                      host_ + ranks + IndexOf(sequence), sizeof(uint64_t), stream));
}

Op CallComparison::gather() const {
  Op op;
  op.kind = OpKind::kAllGather;
  op.dtype = DType::kInt64;
  op.count = 1;
  op.output = reinterpret_cast<void*>(gathered_);
  op.input = static_cast<uint64_t*>(op.output) + world_size_;
  return op;
}

absl::Status CallComparison::Download(CudaStream stream) const {
  return CudaStatus(
      device_.api(), "cuMemcpyDtoHAsync",
      device_.api().cuMemcpyDtoHAsync(host_, gathered_,
                                      static_cast<size_t>(world_size_) * sizeof(uint64_t), stream));
}

absl::Status CallComparison::Judge(uint64_t sequence) {
  // A later comparison may be writing already, and tells of earlier calls as well.
  if (sequence != newest_) return absl::OkStatus();
  std::map<uint64_t, std::vector<int>> by_hash;
  for (int rank = 0; rank < world_size_; ++rank) by_hash[host_[rank]].push_back(rank);
  if (by_hash.size() == 1) {
    alike_ = sequence;
    return absl::OkStatus();
  }
  // The most ranks are right; of two equal halves, that of rank 0.
  const auto right = std::max_element(by_hash.begin(), by_hash.end(), [](auto& a, auto& b) {
    return std::pair(a.second.size(), b.second.front()) <
           std::pair(b.second.size(), a.second.front());
  });
  std::vector<int> others;
  for (const auto& [hash, ranks] : by_hash) {
    if (hash != right->first) others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::sort(others.begin(), others.end());
  return absl::DataLossError(absl::StrCat(
      NameRanks(others), " made other calls than rank ", right->second.front(), " somewhere in #",
      alike_ + 1, " to #", sequence,
      " (another kind, type, reduction, count or root), and NCCL computed with them all the same"));
}

}  // namespace ddp::internal
