#include "worker_runtime/comm/tcp/sealed_records.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "rendezvous/base/check.h"

namespace ddp::internal {
namespace {

constexpr size_t kHeaderBytes = RecordSealer::kHeaderBytes;
// A system call brings several records; the rest of the last one is moved to the front.
constexpr size_t kRecordsOfRoom = 4;

std::array<char, kHeaderBytes> HeaderOf(size_t size) {
  std::array<char, kHeaderBytes> header;
  for (size_t i = 0; i < kHeaderBytes; ++i) header[i] = static_cast<char>(size >> (24 - 8 * i));
  return header;
}

size_t SizeIn(const char* header) {
  size_t size = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) size = size << 8 | static_cast<uint8_t>(header[i]);
  return size;
}

}  // namespace

void RecordSealer::Seal(std::string_view first, std::string_view second) {
  const size_t size = first.size() + second.size();
  DDP_CHECK(!HasPending() && size > 0 && size <= kMostBytes);
  size_ = kHeaderBytes + size + LinkCipher::kTagBytes;
  sent_ = 0;
  if (record_.size() < size_) record_.resize(size_);
  const auto header = HeaderOf(size);
  std::memcpy(record_.data(), header.data(), header.size());
  cipher_->Seal(number_++, {header.data(), header.size()}, first, second,
                record_.data() + kHeaderBytes);
}

std::span<char> RecordOpener::Room() {
  if (sealed_.empty()) sealed_.resize(kRecordsOfRoom * kMostSealed);
  if (begin_ == end_) begin_ = end_ = 0;
  if (sealed_.size() - end_ < kMostSealed) {
    std::memmove(sealed_.data(), sealed_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  DDP_CHECK(end_ < sealed_.size());
  return {sealed_.data() + end_, sealed_.size() - end_};
}

std::optional<size_t> RecordOpener::Read(char* to, size_t size) {
  if (is_broken_) return std::nullopt;
  if (taken_ < opened_.size()) return TakeOpened(to, size);
  if (end_ - begin_ < kHeaderBytes) return 0;
  const char* header = sealed_.data() + begin_;
  const size_t bytes = SizeIn(header);
  if (bytes == 0 || bytes > RecordSealer::kMostBytes) {
    is_broken_ = true;
    return std::nullopt;
  }
  const size_t whole = kHeaderBytes + bytes + LinkCipher::kTagBytes;
  if (end_ - begin_ < whole) return 0;
  const bool is_direct = bytes <= size;
  if (!is_direct) {
    opened_.resize(bytes);
    taken_ = 0;
  }
  if (!cipher_->Open(number_++, {header, kHeaderBytes}, header + kHeaderBytes, bytes,
                     is_direct ? to : opened_.data())) {
    is_broken_ = true;
    return std::nullopt;
  }
  begin_ += whole;
  return is_direct ? bytes : TakeOpened(to, size);
}

size_t RecordOpener::TakeOpened(char* to, size_t size) {
  const size_t bytes = std::min(size, opened_.size() - taken_);
  std::memcpy(to, opened_.data() + taken_, bytes);
  taken_ += bytes;
  if (taken_ == opened_.size()) {
    opened_.clear();
    taken_ = 0;
  }
  return bytes;
}

}  // namespace ddp::internal
