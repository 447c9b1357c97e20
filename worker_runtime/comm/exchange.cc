#include "worker_runtime/comm/exchange.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

std::string Elements(const OpRecord& record) {
  return absl::StrCat(Name(record.dtype), " x ", record.count);
}

// "receives float32 x 8 from rank 3", "sends nothing".
std::string Said(const char* verb, const OpRecord& record, const char* toward, int peer) {
  if (peer < 0) return absl::StrCat(verb, " nothing");
  return absl::StrCat(verb, " ", Elements(record), " ", toward, " rank ", peer);
}

}  // namespace

bool Exchange::Is(OpKind kind) {
  return kind == OpKind::kGather || kind == OpKind::kScatter || kind == OpKind::kAllToAll ||
         kind == OpKind::kSendReceive;
}

Exchange::Exchange(const Op& op, int rank, int world_size)
    : kind_(op.kind),
      world_size_(world_size),
      root_(op.root),
      bytes_(op.bytes()),
      has_many_inputs_(op.kind == OpKind::kScatter || op.kind == OpKind::kAllToAll),
      has_many_outputs_(op.kind == OpKind::kGather || op.kind == OpKind::kAllToAll),
      longest_(op.bytes()) {
  if (kind_ != OpKind::kSendReceive) return;
  messages_.resize(static_cast<size_t>(world_size));
  if (op.source >= 0) messages_[static_cast<size_t>(op.source)] = {rank, bytes_};
  if (op.destination >= 0) messages_[static_cast<size_t>(rank)] = {op.destination, bytes_};
}

absl::Status Exchange::Learn(const std::vector<OpRecord>& records) {
  if (kind_ != OpKind::kSendReceive) return absl::OkStatus();
  const int ranks = static_cast<int>(records.size());
  const auto mismatch = [&](int from, int to) {
    const OpRecord& sender = records[static_cast<size_t>(from)];
    const OpRecord& receiver = records[static_cast<size_t>(to)];
    return absl::InvalidArgumentError(
        absl::StrCat("send-receive #", sender.sequence, ": rank ", from, " ",
                     Said("sends", sender, "to", sender.destination), ", but rank ", to, " ",
                     Said("receives", receiver, "from", receiver.source)));
  };
  longest_ = 0;
  // They come from other processes, over sockets too.
  for (int rank = 0; rank < ranks; ++rank) {
    const OpRecord& own = records[static_cast<size_t>(rank)];
    const size_t size = SizeOf(own.dtype);
    if (own.source >= -1 && own.source < ranks && own.destination >= -1 &&
        own.destination < ranks && size != 0 && own.count <= PTRDIFF_MAX / size) {
      continue;
    }
    return absl::InternalError(
        absl::StrCat("send-receive #", own.sequence, " failed: rank ", rank, " sent garbage"));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const OpRecord& own = records[static_cast<size_t>(rank)];
    if (own.source >= 0 && records[static_cast<size_t>(own.source)].destination != rank) {
      return mismatch(own.source, rank);
    }
    if (own.destination < 0) continue;
    const OpRecord& peer = records[static_cast<size_t>(own.destination)];
    if (peer.source != rank || peer.count != own.count || peer.dtype != own.dtype) {
      return mismatch(rank, own.destination);
    }
    const size_t bytes = own.count * SizeOf(own.dtype);
    messages_[static_cast<size_t>(rank)] = {own.destination, bytes};
    longest_ = std::max(longest_, bytes);
  }
  return absl::OkStatus();
}

size_t Exchange::Bytes(int from, int to) const {
  if (kind_ == OpKind::kGather) return to == root_ ? bytes_ : 0;
  if (kind_ == OpKind::kScatter) return from == root_ ? bytes_ : 0;
  if (kind_ == OpKind::kAllToAll) return bytes_;
  const Message& message = messages_[static_cast<size_t>(from)];
  return message.to == to ? message.bytes : 0;
}

}  // namespace ddp::internal
