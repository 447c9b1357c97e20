#include "worker_runtime/comm/nccl/call_comparison.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/op_record.h"
#include "worker_runtime/gpu/relaxed_capture.h"

namespace ddp::internal {
namespace {

// Behind calls 8^1 to 8^21, which is all that 64 bits count.
constexpr int kBitsOfStep = 3;
constexpr size_t kComparisons = 22;

bool IsComparedAt(uint64_t sequence) {
  return sequence > 1 && std::has_single_bit(sequence) &&
         std::countr_zero(sequence) % kBitsOfStep == 0;
}

size_t IndexOf(uint64_t sequence) {
  return static_cast<size_t>(std::countr_zero(sequence) / kBitsOfStep);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallComparison>> CallComparison::Create(const Device& device,
                                                                       int rank, int world_size) {
  std::unique_ptr<CallComparison> made(new CallComparison(device, rank, world_size));
  const CudaApi& api = device.api();
  const size_t ranks = static_cast<size_t>(world_size);
  void* host = nullptr;
  CudaResult result = api.cuMemAllocHost(&host, (ranks + kComparisons) * sizeof(uint64_t));
  if (result != kCudaSuccess) return CudaStatus(api, "cuMemAllocHost", result);
  made->host_ = static_cast<uint64_t*>(host);
  result = api.cuMemAlloc(&made->gathered_, (ranks + 1) * sizeof(uint64_t));
  if (result == kCudaSuccess) return made;
  api.cuMemFreeHost(host);
  return CudaStatus(api, "cuMemAlloc", result);
}

void CallComparison::Free() {
  const RelaxedCapture relaxed(device_.api());
  device_.api().cuMemFree(gathered_);
  device_.api().cuMemFreeHost(host_);
}

bool CallComparison::Add(const Op& op) {
  const OpRecord record = SharedRecordOf(op);
  calls_.Add(&record, sizeof(record));
  if (!IsComparedAt(op.sequence) || op.kind == OpKind::kReplay) return false;
  newest_ = op.sequence;
  host_[static_cast<size_t>(world_size_) + IndexOf(op.sequence)] = calls_.value();
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
