#include "rendezvous/wire/frame_limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint8_t kHeaders = 1;
constexpr uint8_t kPushPromise = 5;  // only servers send it
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEndHeaders = 4;  // a flag of these

}  // namespace

bool FrameLimits::Takes(TimePoint now, bool has_joined, std::string_view bytes) {
  received_ += bytes.size();
  if (!has_joined && received_ > kMaxBytesBeforeJoin + sent_ / kSentPerByte) return false;
  while (!bytes.empty()) {
    if (preface_left_ > 0 || payload_left_ > 0) {
      size_t& left = preface_left_ > 0 ? preface_left_ : payload_left_;
      const size_t skipped = std::min(left, bytes.size());
      left -= skipped;
      frames_.Pay(skipped);
      has_call_ = has_call_ || (payload_left_ == 0 && header_bytes_ > 0 && !is_in_headers_);
      bytes.remove_prefix(skipped);
      continue;
    }
    head_[head_size_++] = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    if (head_size_ < head_.size()) continue;
    head_size_ = 0;
    if (!TakesHead(now, has_joined)) return false;
  }
  return true;
}

bool FrameLimits::TakesHead(TimePoint now, bool has_joined) {
  payload_left_ = size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2];
  const uint8_t type = head_[3];
  const uint8_t flags = head_[4];
  if (!frames_.Add(now, has_joined ? kFrames : kFramesBeforeJoin)) return false;
  // Nothing may come between the frames of a header block.
  if (is_in_headers_ != (type == kContinuation) || type == kPushPromise) return false;
  if (type != kHeaders && type != kContinuation) return true;
  if (type == kHeaders) {
    if (!streams_.Add(now, has_joined ? kStreams : kStreamsBeforeJoin)) return false;
    header_bytes_ = 0;
  }
  header_bytes_ += payload_left_;
  is_in_headers_ = (flags & kEndHeaders) == 0;
  return header_bytes_ <= kMaxHeaderBytes;
}

}  // namespace ddprun::rendezvous
