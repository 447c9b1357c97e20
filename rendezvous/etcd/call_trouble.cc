#include "rendezvous/etcd/call_trouble.h"

#include <string_view>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/net/connect_error.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxCauseBytes = 300;
// Before the reason why there is no connection.
constexpr std::string_view kLast = "last error: ";
constexpr absl::string_view kNoLeader = "etcdserver: no leader";

// gRPC wraps the kernel's word in several of its own, with an address that has a name for us.
std::string Unwrapped(const std::string& message) {
  constexpr std::string_view kKernel = "remote host: ";
  if (const size_t mark = message.rfind(kKernel); mark != std::string::npos) {
    return message.substr(mark + kKernel.size());
  }
  const size_t last = message.rfind(kLast);
  if (last == std::string::npos) return message;
  // "UNKNOWN: ipv4:127.0.0.1:2379: Ssl handshake failed", "UNAVAILABLE: ipv6:%5B::1%5D:2379: ..."
  const std::string text = message.substr(last + kLast.size());
  const size_t address = text.find(": ipv");
  const size_t cause = address == std::string::npos ? address : text.find(": ", address + 2);
  return cause == std::string::npos ? text : text.substr(cause + 2);
}

// Of a connection in TLS; "": of something else.
std::string TlsTrouble(const std::string& message) {
  const auto has = [&message](absl::string_view words) {
    return absl::StrContains(message, words);
  };
  const bool is_connecting = message.find(kLast) != std::string::npos;
  if (has("certificate verify failed")) {
    return "its certificate is not believed: expected one that is valid now (is this machine's "
           "clock right?). It must be signed by an authority in --rdzv-conf cacert, or without "
           "it by one of this system";
  }
  // A peer name that a certificate lacks is gRPC's own check.
  if (has("Peer name")) {
    return "its certificate is for another name than the one in --rdzv-endpoint";
  }
  // In TLS 1.2, which etcd keeps to before 3.5.8, it can still say so.
  const bool is_refused = has(" alert ") && (has("certificate") || has("unknown ca"));
  if (is_connecting && (is_refused || has("Endpoint read failed"))) {
    return "it ended TLS when it saw this node's certificate, or none: expected --rdzv-conf cert "
           "and key that it believes";
  }
  // A member without TLS ends the connection in the midst of the handshake, in one way or another.
  const bool is_ended = has("Socket closed") || has("recvmsg:Connection reset by peer");
  if (is_connecting && (is_ended || has("wrong version number"))) {
    return absl::StrCat(kNoTlsAnswer, ": does it have any? without, --rdzv-conf protocol=http");
  }
  if (has("empty address list")) {
    return "gRPC finds no authorities on this machine, or takes none of those that it was given: "
           "name them with --rdzv-conf cacert";
  }
  return "";
}

}  // namespace

std::string CallTrouble(absl::StatusCode code, const std::string& message, bool is_tls) {
  if (code == absl::StatusCode::kDeadlineExceeded) return "no answer in time";
  if (absl::StrContains(message, "http1.x server")) {
    return "it speaks HTTP/1 alone: expected etcd 3's client port";
  }
  if (absl::StrContains(message, kNoLeader)) {
    return absl::StrCat(
        "it hears of no leader: it is cut off from most members, or they elect one (", kNoLeader,
        ")");
  }
  if (std::string trouble = is_tls ? TlsTrouble(message) : ""; !trouble.empty()) return trouble;
  // The kernel's word, whichever call of gRPC's it came from.
  const std::error_code no_port = std::make_error_code(std::errc::address_not_available);
  if (absl::StrContains(message, no_port.message())) return ConnectErrorText(no_port.value());
  const std::string cause = EscapeControl(Unwrapped(message));
  return cause.substr(0, CharacterStart(cause, kMaxCauseBytes));
}

}  // namespace ddprun::rendezvous
