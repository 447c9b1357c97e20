#include "rendezvous/wire/hello.h"

#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kMember = "ddprun/1 run ";
constexpr std::string_view kApart = "ddprun/1 apart ";
constexpr std::string_view kRelease = "release ";
constexpr size_t kMaxRunIdBytes = 256;

std::string Shorten(const std::string& run_id) { return run_id.substr(0, kMaxRunIdBytes); }

// Whichever ends first begins the other.
bool Agree(std::string_view bytes, std::string_view prefix) {
  return bytes.starts_with(prefix.substr(0, bytes.size()));
}

// "release 1 0.1.0".
std::optional<Release> ParseRelease(std::string_view line) {
  if (!line.starts_with(kRelease)) return std::nullopt;
  line.remove_prefix(kRelease.size());
  const size_t space = line.find(' ');
  Release release;
  if (space == std::string_view::npos || space == 0 ||
      line.find_first_not_of("0123456789") < space ||
      !absl::SimpleAtoi(std::string(line.substr(0, space)), &release.protocol) ||
      release.protocol < kFirstProtocol || release.protocol > kMaxProtocol) {
    return std::nullopt;
  }
  release.version = line.substr(space + 1, kMaxReleaseVersionBytes);
  return release;
}

// The first line, which ends at `end`.
HelloAnswer ParseFirstLine(const std::string& bytes, Hello& hello, size_t& end) {
  const bool is_apart = Agree(bytes, kApart);
  if (!is_apart && !Agree(bytes, kMember)) return HelloAnswer::kForeign;
  end = std::string_view(bytes).substr(0, kMaxHelloReplyBytes).find('\n');
  if (end == std::string::npos) {
    return bytes.size() >= kMaxHelloReplyBytes ? HelloAnswer::kForeign : HelloAnswer::kIncomplete;
  }
  const size_t begin = (is_apart ? kApart : kMember).size();
  hello = {.run_id = bytes.substr(begin, end - begin), .is_apart = is_apart, .release = {}};
  return HelloAnswer::kHello;
}

}  // namespace

std::string GreetedRunId(const std::string& run_id) { return Shorten(EscapeControl(run_id)); }

std::string MakeHelloReply(const Hello& hello) {
  return std::string(hello.is_apart ? kApart : kMember) + Shorten(hello.run_id) + "\n" +
         std::string(kRelease) + std::to_string(hello.release.protocol) + " " +
         hello.release.version.substr(0, kMaxReleaseVersionBytes) + "\n";
}

HelloAnswer ParseHelloReply(const std::string& bytes, Hello& hello) {
  size_t first = 0;
  const HelloAnswer answer = ParseFirstLine(bytes, hello, first);
  if (answer != HelloAnswer::kHello) return answer;
  // What follows the second line does not count: it may have come together with it, or not yet.
  const std::string_view rest =
      std::string_view(bytes).substr(0, kMaxHelloReplyBytes).substr(first + 1);
  if (!Agree(rest, kRelease)) return HelloAnswer::kForeign;
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) {
    return bytes.size() >= kMaxHelloReplyBytes ? HelloAnswer::kForeign : HelloAnswer::kIncomplete;
  }
  const std::optional<Release> release = ParseRelease(rest.substr(0, end));
  if (!release) return HelloAnswer::kForeign;
  hello.release = *release;
  return HelloAnswer::kHello;
}

bool ParseOldHelloReply(const std::string& bytes, Hello& hello) {
  size_t end = 0;
  return ParseFirstLine(bytes, hello, end) == HelloAnswer::kHello && end + 1 == bytes.size();
}

bool Serves(const Hello& hello, const std::string& run_id) {
  return hello.run_id.empty() || hello.run_id == Shorten(run_id);
}

}  // namespace ddprun::rendezvous
