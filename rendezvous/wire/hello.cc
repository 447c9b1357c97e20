#include "rendezvous/wire/hello.h"

#include <string_view>

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kMember = "ddprun/1 run ";
constexpr std::string_view kApart = "ddprun/1 apart ";
constexpr size_t kMaxRunIdBytes = 256;

std::string Shorten(const std::string& run_id) { return run_id.substr(0, kMaxRunIdBytes); }

// Whichever ends first begins the other.
bool Agree(std::string_view bytes, std::string_view prefix) {
  return bytes.starts_with(prefix.substr(0, bytes.size()));
}

}  // namespace

std::string MakeHelloReply(const Hello& hello) {
  return std::string(hello.is_apart ? kApart : kMember) + Shorten(hello.run_id) + "\n";
}

HelloAnswer ParseHelloReply(const std::string& bytes, Hello& hello) {
  const bool is_apart = Agree(bytes, kApart);
  if (!is_apart && !Agree(bytes, kMember)) return HelloAnswer::kForeign;
  // What follows the first bytes does not count: it may have come together with them, or not yet.
  const size_t end = std::string_view(bytes).substr(0, kMaxHelloReplyBytes).find('\n');
  if (end == std::string::npos) {
    return bytes.size() >= kMaxHelloReplyBytes ? HelloAnswer::kForeign : HelloAnswer::kIncomplete;
  }
  const size_t begin = (is_apart ? kApart : kMember).size();
  hello = {.run_id = bytes.substr(begin, end - begin), .is_apart = is_apart};
  return HelloAnswer::kHello;
}

bool Serves(const Hello& hello, const std::string& run_id) {
  return hello.run_id.empty() || hello.run_id == Shorten(run_id);
}

}  // namespace ddprun::rendezvous
