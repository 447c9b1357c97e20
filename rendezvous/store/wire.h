// The bytes of PyTorch's TCPStore protocol (torch >= 2.4), both directions. [pure]
//
// Requests carry no frame header: an opcode, then fields, numbers in host byte order, `key` and
// `payload` as u64 length + bytes. One table of patterns describes every request; the parser and
// the encoder both walk it, so they cannot disagree.
#ifndef DDPRUN_RENDEZVOUS_STORE_WIRE_H_
#define DDPRUN_RENDEZVOUS_STORE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::rendezvous {

enum class StoreOp : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kGetNumKeys = 7,
  kDeleteKey = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLen = 16,
  kListKeys = 17,
  kBarrier = 18,
};

// The word after VALIDATE, the first command of every connection.
inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;

// Replies of one byte.
inline constexpr char kCheckReady = 0;
inline constexpr char kCheckNotReady = 1;
inline constexpr char kStopWaiting = 0;
inline constexpr char kWaitCanceled = 1;

struct StoreLimits {
  uint64_t key_bytes = 8 << 10;
  uint64_t payload_bytes = 8 << 20;
  uint64_t keys_per_command = 131072;
  // Ours alone: PyTorch lets one MULTI_SET grow to a tebibyte.
  uint64_t command_bytes = 256 << 20;
};

// One request. `fields` holds keys and payloads in the order they are sent.
struct StoreCommand {
  StoreOp op = StoreOp::kPing;
  uint32_t word = 0;   // VALIDATE: the magic. PING: the nonce.
  int64_t number = 0;  // ADD: the amount. BARRIER: the world size.
  std::vector<std::string_view> fields;
};

// Finds requests in a stream that arrives in any pieces. The caller owns the bytes; the parser
// remembers how far into the current request it has looked, so that no byte is looked at twice.
class RequestParser {
 public:
  enum class Result { kCommand, kNeedMore, kBad };

  // `bytes` begins at the first byte of the request after the last one returned and holds
  // everything received since. On kCommand the request took `*consumed` bytes and the views in
  // `command` point into `bytes`. On kNeedMore call again with the same bytes and more. kBad (an
  // unknown opcode, a limit exceeded) is final: there is no way to find the next request.
  Result Parse(std::string_view bytes, const StoreLimits& limits, StoreCommand* command,
               size_t* consumed);

 private:
  struct Span {
    uint32_t offset;
    uint32_t length;
  };

  Result ReadField(std::string_view bytes, const StoreLimits& limits);
  Result ReadSpan(std::string_view bytes, uint64_t max_length, const StoreLimits& limits);

  const char* pattern_ = nullptr;  // The next field; null between requests.
  const char* repeat_from_ = nullptr;
  uint64_t repeats_left_ = 0;
  size_t offset_ = 0;
  uint32_t word_ = 0;
  int64_t number_ = 0;
  std::vector<Span> spans_;
};

// Appends the request to `out`. REQUIRES: `fields` fits the operation's pattern.
void AppendRequest(const StoreCommand& command, std::string* out);

// The parts of replies, appended to `out`.
void AppendByte(char value, std::string* out);
void AppendU32(uint32_t value, std::string* out);
void AppendI64(int64_t value, std::string* out);
void AppendBytes(std::string_view value, std::string* out);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STORE_WIRE_H_
