// The bytes of a checkpoint's header. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_FORMAT_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_FORMAT_H_

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddp/checkpoint.h"

namespace ddp::internal {

// A checkpoint file, numbers little-endian:
//   8 bytes   magic, with the version of the format
//   u64       bytes of the header
//   header    step, epoch, samples taken (i64 each); u32 number of extras, each two strings;
//             u32 number of tensors, each a string, u8 type, u64 count. A string: u32 length, bytes
//   data      of the tensors, one after the other
//   16 bytes  XXH3 (128 bits, most significant byte first) of everything before
inline constexpr absl::string_view kCheckpointMagic = "ddpckpt2";
inline constexpr absl::string_view kEarlierMagic = "ddpckpt1";  // ended with a SHA-256
inline constexpr size_t kPrefixBytes = 16;                      // magic and header length
inline constexpr uint64_t kMaxHeaderBytes = 64 << 20;           // a million tensors
static_assert(std::endian::native == std::endian::little);

// Appends fields to a string.
class ByteWriter {
 public:
  template <typename T>
  void Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void String(absl::string_view value);
  void State(const TrainingState& state);
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Takes fields from the front of `bytes`. After the first that does not fit, all are zero or empty
// and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : rest_(bytes) {}
  template <typename T>
  T Number() {
    T value{};
    const absl::string_view field = Take(sizeof(value));
    if (is_ok_) field.copy(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  }
  std::string String() { return std::string(Take(Number<uint32_t>())); }
  TrainingState State();
  bool ok() const { return is_ok_; }
  bool is_at_end() const { return is_ok_ && rest_.empty(); }

 private:
  absl::string_view Take(size_t bytes);

  absl::string_view rest_;
  bool is_ok_ = true;
};

struct CheckpointHeader {
  TrainingState state;
  std::vector<Tensor> tensors;  // without data
};

// Prefix and header of a file with these tensors.
std::string EncodeCheckpointHeader(const TrainingState& state, std::span<const Tensor> tensors);
// `bytes` is the header without its prefix. DataLoss for anything Encode would not have written.
absl::StatusOr<CheckpointHeader> DecodeCheckpointHeader(absl::string_view bytes);

// FailedPrecondition naming the first tensor in which the two differ.
absl::Status CheckSameTensors(std::span<const Tensor> in_file, std::span<const Tensor> wanted);

inline uint64_t Bytes(const Tensor& tensor) {
  return uint64_t{tensor.count} * SizeOf(tensor.dtype);
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_FORMAT_H_
