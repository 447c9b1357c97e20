#include "rendezvous/store/wire.h"

#include <cstring>
#include <iterator>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

// Indexed by opcode. k key, p payload, u 32-bit word, i 64-bit number; n is a count, and what
// follows it is repeated that often.
constexpr const char* kPatterns[] = {
    "u",    // VALIDATE
    "kp",   // SET
    "kpp",  // COMPARE_SET
    "k",    // GET
    "ki",   // ADD
    "nk",   // CHECK
    "nk",   // WAIT
    "",     // GETNUMKEYS
    "k",    // DELETE_KEY
    "kp",   // APPEND
    "nk",   // MULTI_GET
    "nkp",  // MULTI_SET
    "",     // CANCEL_WAIT
    "u",    // PING
    "kp",   // QUEUE_PUSH
    "k",    // QUEUE_POP
    "k",    // QUEUE_LEN
    "",     // LIST_KEYS
    "ki",   // BARRIER
};

template <typename T>
T Load(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void AppendRaw(T value, std::string* out) {
  char raw[sizeof(value)];
  std::memcpy(raw, &value, sizeof(value));
  out->append(raw, sizeof(raw));
}

}  // namespace

RequestParser::Result RequestParser::Parse(std::string_view bytes, const StoreLimits& limits,
                                           StoreCommand* command, size_t* consumed) {
  if (pattern_ == nullptr) {
    if (bytes.empty()) return Result::kNeedMore;
    const auto op = static_cast<uint8_t>(bytes[0]);
    if (op >= std::size(kPatterns)) return Result::kBad;
    pattern_ = kPatterns[op];
    repeats_left_ = 0;
    offset_ = 1;
    word_ = 0;
    number_ = 0;
    spans_.clear();
  }
  while (true) {
    if (*pattern_ == '\0') {
      if (repeats_left_ <= 1) break;
      --repeats_left_;
      pattern_ = repeat_from_;
    }
    const Result result = ReadField(bytes, limits);
    if (result != Result::kCommand) return result;
  }
  command->op = static_cast<StoreOp>(bytes[0]);
  command->word = word_;
  command->number = number_;
  command->fields.clear();
  for (const Span& span : spans_) {
    command->fields.push_back(bytes.substr(span.offset, span.length));
  }
  *consumed = offset_;
  pattern_ = nullptr;
  // A connection that once sent a giant must not stay one.
  if (spans_.capacity() > 64) std::vector<Span>().swap(spans_);
  return Result::kCommand;
}

// kCommand here means "this field is complete".
RequestParser::Result RequestParser::ReadField(std::string_view bytes, const StoreLimits& limits) {
  const size_t available = bytes.size() - offset_;
  switch (*pattern_) {
    case 'k':
      return ReadSpan(bytes, limits.key_bytes, limits);
    case 'p':
      return ReadSpan(bytes, limits.payload_bytes, limits);
    case 'u':
      if (available < sizeof(word_)) return Result::kNeedMore;
      word_ = Load<uint32_t>(bytes, offset_);
      offset_ += sizeof(word_);
      break;
    case 'i':
      if (available < sizeof(number_)) return Result::kNeedMore;
      number_ = Load<int64_t>(bytes, offset_);
      offset_ += sizeof(number_);
      break;
    case 'n': {
      if (available < sizeof(uint64_t)) return Result::kNeedMore;
      const auto count = Load<uint64_t>(bytes, offset_);
      if (count > limits.keys_per_command) return Result::kBad;
      offset_ += sizeof(uint64_t);
      repeats_left_ = count;
      repeat_from_ = pattern_ + 1;
      if (count == 0) pattern_ += std::strlen(pattern_) - 1;
      break;
    }
    default:
      DDP_CHECK(false);
  }
  ++pattern_;
  return Result::kCommand;
}

RequestParser::Result RequestParser::ReadSpan(std::string_view bytes, uint64_t max_length,
                                              const StoreLimits& limits) {
  const size_t available = bytes.size() - offset_;
  if (available < sizeof(uint64_t)) return Result::kNeedMore;
  const auto length = Load<uint64_t>(bytes, offset_);
  if (length > max_length) return Result::kBad;
  const size_t start = offset_ + sizeof(uint64_t);
  if (start + length > limits.command_bytes) return Result::kBad;
  if (available - sizeof(uint64_t) < length) return Result::kNeedMore;
  spans_.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(length)});
  offset_ = start + length;
  ++pattern_;
  return Result::kCommand;
}

void AppendRequest(const StoreCommand& command, std::string* out) {
  const char* pattern = kPatterns[static_cast<uint8_t>(command.op)];
  AppendByte(static_cast<char>(command.op), out);
  size_t repeats = 1;
  if (*pattern == 'n') {
    ++pattern;
    const size_t per_entry = std::strlen(pattern);
    DDP_CHECK(command.fields.size() % per_entry == 0);
    repeats = command.fields.size() / per_entry;
    AppendRaw(static_cast<uint64_t>(repeats), out);
  }
  size_t next = 0;
  for (size_t i = 0; i < repeats; ++i) {
    for (const char* field = pattern; *field != '\0'; ++field) {
      switch (*field) {
        case 'u':
          AppendRaw(command.word, out);
          break;
        case 'i':
          AppendRaw(command.number, out);
          break;
        default:
          DDP_CHECK(next < command.fields.size());
          AppendBytes(command.fields[next++], out);
      }
    }
  }
  DDP_CHECK(next == command.fields.size());
}

void AppendByte(char value, std::string* out) { out->push_back(value); }

void AppendU32(uint32_t value, std::string* out) { AppendRaw(value, out); }

void AppendI64(int64_t value, std::string* out) { AppendRaw(value, out); }

void AppendBytes(std::string_view value, std::string* out) {
  AppendRaw(static_cast<uint64_t>(value.size()), out);
  out->append(value);
}

}  // namespace ddprun::rendezvous
