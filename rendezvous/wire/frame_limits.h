// What the other side of an HTTP/2 connection (RFC 9113) may send, before gRPC sees it. [pure]
//
// gRPC 1.51 pays far more for a frame than its sender, and bounds none of it: 4 MB of streams that
// are opened and reset cost it 265 MB, PINGs and bytes of data on their own nine times their size.
// So the port counts frames, in a bucket that leaks (GCRA, ITU-T I.371). Agents send a few a
// second; each 512 bytes that are carried, either way, allow one more, so that nothing honest comes
// near the bounds.
#ifndef DDPRUN_RENDEZVOUS_WIRE_FRAME_LIMITS_H_
#define DDPRUN_RENDEZVOUS_WIRE_FRAME_LIMITS_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/time.h"

namespace ddprun::rendezvous {

// One connection, from its preface on.
class FrameLimits {
 public:
  // Of one header block, in all its frames. gRPC takes 8 KiB.
  static constexpr size_t kMaxHeaderBytes = 16 * 1024;
  // Until the agent has joined: a join of the largest size, and what goes with it.
  static constexpr size_t kMaxBytesBeforeJoin = 96 * 1024;
  // At once, and in each second after that.
  static constexpr int kStreamsBeforeJoin = 2, kFramesBeforeJoin = 64;
  static constexpr int kStreams = 16, kFrames = 1024;
  static constexpr int kStreamsPerSecond = 1, kFramesPerSecond = 64;
  static constexpr size_t kBytesPerFrame = 512;
  // Who reads what it is sent tells how much it can take next.
  static constexpr size_t kSentPerByte = 16;

  // The other side has sent `bytes`, the first ones the preface. False: that is too much, or no
  // HTTP/2; the connection has to be closed.
  bool Takes(TimePoint now, bool has_joined, std::string_view bytes);
  // So much was sent to the other side.
  void Sent(size_t bytes) {
    sent_ += bytes;
    frames_.Pay(bytes);
  }
  // Whether all headers of a call have come.
  bool has_call() const { return has_call_; }

 private:
  static constexpr size_t kPrefaceBytes = 24;  // gRPC looks at what it says

  // Counts what comes, and forgets `per_second` of it in each second.
  class Bucket {
   public:
    explicit Bucket(int per_second) : each_(Duration(std::chrono::seconds(1)) / per_second) {}
    // One more. Whether there are at most `most` then.
    bool Add(TimePoint now, int most) {
      empty_at_ = std::max(empty_at_, now) + each_;
      return empty_at_ - now <= each_ * most;
    }
    void Pay(size_t bytes) {
      paid_ += bytes;
      empty_at_ -= each_ * static_cast<int64_t>(paid_ / kBytesPerFrame);
      paid_ %= kBytesPerFrame;
    }

   private:
    const Duration each_;
    TimePoint empty_at_{};
    size_t paid_ = 0;  // towards the next one
  };

  bool TakesHead(TimePoint now, bool has_joined);

  size_t preface_left_ = kPrefaceBytes;
  std::array<uint8_t, 9> head_{};  // of the frame that comes
  size_t head_size_ = 0;           // so far
  size_t payload_left_ = 0;        // of the frame whose head has come
  bool is_in_headers_ = false;
  size_t header_bytes_ = 0;  // of the block that comes
  bool has_call_ = false;
  uint64_t received_ = 0;
  uint64_t sent_ = 0;
  Bucket frames_{kFramesPerSecond};
  Bucket streams_{kStreamsPerSecond};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_FRAME_LIMITS_H_
