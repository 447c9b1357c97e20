// The bytes of a sealed link: what one end seals, piece by piece, the other opens in that order.
//
// A record is the size of what is in it (4 bytes, the highest first), the sealed bytes, and their
// tag of 16 bytes. The records of a direction are numbered from 0 on, and the number is in no
// record: one that was changed, left out, said twice or moved does not open.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_SEALED_RECORDS_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_SEALED_RECORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "worker_runtime/comm/tcp/link_crypto.h"

namespace ddp::internal {

class RecordSealer {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 10;  // of what is in a record
  static constexpr size_t kHeaderBytes = 4;

  explicit RecordSealer(std::unique_ptr<LinkCipher> cipher) : cipher_(std::move(cipher)) {}

  // Makes a record of both pieces. REQUIRES: all before has been sent; 1 to kMostBytes together.
  void Seal(std::string_view first, std::string_view second);
  // What is to be sent, and what of it was.
  std::string_view Pending() const { return {record_.data() + sent_, size_ - sent_}; }
  bool HasPending() const { return sent_ < size_; }
  void Sent(size_t bytes) { sent_ += bytes; }

 private:
  const std::unique_ptr<LinkCipher> cipher_;
  uint64_t number_ = 0;  // of the next record
  std::vector<char> record_;
  size_t size_ = 0;
  size_t sent_ = 0;
};

class RecordOpener {
 public:
  explicit RecordOpener(std::unique_ptr<LinkCipher> cipher) : cipher_(std::move(cipher)) {}

  // Where what comes next goes, never nothing, and how much of it came. REQUIRES: Read() has
  // returned 0.
  std::span<char> Room();
  void Received(size_t bytes) { end_ += bytes; }
  // Moves up to `size` opened bytes to `to` and says how many. 0: more has to come first. Nothing:
  // what came is not what the other end has sealed, and nothing more can be read.
  std::optional<size_t> Read(char* to, size_t size);
  // Whether bytes came that Read() has not given out.
  bool HasUnread() const { return begin_ < end_ || taken_ < opened_.size(); }

 private:
  static constexpr size_t kMostSealed =
      RecordSealer::kHeaderBytes + RecordSealer::kMostBytes + LinkCipher::kTagBytes;

  size_t TakeOpened(char* to, size_t size);

  const std::unique_ptr<LinkCipher> cipher_;
  uint64_t number_ = 0;  // of the next record
  std::vector<char> sealed_;
  size_t begin_ = 0;  // of what is in sealed_
  size_t end_ = 0;
  std::vector<char> opened_;  // the last record's, where Read() had no room for all of it
  size_t taken_ = 0;
  bool is_broken_ = false;
};

// Both directions of one end.
struct SealedChannel {
  RecordSealer out;
  RecordOpener in;
  // The socket may have no more to read while `in` has. For threads that see only the socket.
  std::atomic<bool> may_have_unread{false};
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_SEALED_RECORDS_H_
