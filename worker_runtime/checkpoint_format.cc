#include "worker_runtime/checkpoint_format.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

// Element counts beyond this would overflow when added up in bytes.
constexpr uint64_t kMaxCount = uint64_t{1} << 48;

std::string Describe(std::span<const Tensor> tensors, size_t index) {
  if (index >= tensors.size()) return absl::StrCat("only ", tensors.size(), " tensors");
  const Tensor& tensor = tensors[index];
  return absl::StrCat("'", tensor.name, "', ", tensor.count, " x ", Name(tensor.dtype));
}

}  // namespace

void ByteWriter::String(absl::string_view value) {
  Number(static_cast<uint32_t>(value.size()));
  bytes_.append(value.data(), value.size());
}

void ByteWriter::State(const TrainingState& state) {
  Number(state.step);
  Number(state.sampler.epoch);
  Number(state.sampler.samples_taken);
  Number(static_cast<uint32_t>(state.extra.size()));
  for (const auto& [key, value] : state.extra) {
    String(key);
    String(value);
  }
}

absl::string_view ByteReader::Take(size_t bytes) {
  if (!is_ok_ || bytes > rest_.size()) {
    is_ok_ = false;
    return {};
  }
  const absl::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

TrainingState ByteReader::State() {
  TrainingState state;
  state.step = Number<int64_t>();
  state.sampler.epoch = Number<int64_t>();
  state.sampler.samples_taken = Number<int64_t>();
  const uint32_t extras = Number<uint32_t>();
  for (uint32_t i = 0; i < extras && is_ok_; ++i) {
    std::string key = String();
    // As State writes them: of one that stands there twice a value would be lost.
    if (!state.extra.empty() && key <= state.extra.rbegin()->first) is_ok_ = false;
    state.extra[std::move(key)] = String();
  }
  return state;
}

std::string EncodeCheckpointHeader(const TrainingState& state, std::span<const Tensor> tensors) {
  ByteWriter header;
  header.State(state);
  header.Number(static_cast<uint32_t>(tensors.size()));
  for (const Tensor& tensor : tensors) {
    header.String(tensor.name);
    header.Number(static_cast<uint8_t>(tensor.dtype));
    header.Number(uint64_t{tensor.count});
  }
  const std::string body = header.Take();
  ByteWriter prefix;
  prefix.Number(uint64_t{body.size()});
  return absl::StrCat(kCheckpointMagic, prefix.Take(), body);
}

absl::StatusOr<CheckpointHeader> DecodeCheckpointHeader(absl::string_view bytes) {
  ByteReader reader(bytes);
  CheckpointHeader header;
  header.state = reader.State();
  const uint32_t tensors = reader.Number<uint32_t>();
  for (uint32_t i = 0; i < tensors && reader.ok(); ++i) {
    Tensor tensor;
    tensor.name = reader.String();
    tensor.dtype = static_cast<DType>(reader.Number<uint8_t>());
    tensor.count = reader.Number<uint64_t>();
    if (SizeOf(tensor.dtype) == 0 || tensor.count > kMaxCount) {
      return absl::DataLossError("its header is not one of ours");
    }
    header.tensors.push_back(std::move(tensor));
  }
  if (!reader.is_at_end()) return absl::DataLossError("its header is not one of ours");
  return header;
}

absl::Status CheckSameTensors(std::span<const Tensor> in_file, std::span<const Tensor> wanted) {
  for (size_t i = 0; i < std::max(in_file.size(), wanted.size()); ++i) {
    const std::string here = Describe(in_file, i), there = Describe(wanted, i);
    if (here == there) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("does not fit this model: it has ", here, " where the model has ", there));
  }
  return absl::OkStatus();
}

}  // namespace ddp::internal
