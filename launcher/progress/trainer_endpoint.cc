#include "launcher/progress/trainer_endpoint.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/cli/text.h"
#include "worker_runtime/env_contract.h"

namespace ddprun::launcher {
namespace {

// Takes `authority` apart: "host", "host:8082", "[fd00::1]:8082". Returns whether it is one.
bool SplitAuthority(std::string_view authority, TrainerEndpoint& endpoint) {
  std::string_view host = authority, port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return false;
    host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) return false;
  } else if (const size_t colon = authority.find(':'); colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  uint32_t number = endpoint.is_tls ? 443 : 80;
  if (port.size() > 1 && !absl::SimpleAtoi(std::string(port.substr(1)), &number)) return false;
  if (host.empty() || number == 0 || number > 65535) return false;
  // Who has a password in it would see it in our messages.
  if (authority.find('@') != std::string_view::npos) return false;
  endpoint.host = host;
  endpoint.port = static_cast<uint16_t>(number);
  endpoint.authority = authority;
  return true;
}

bool SplitUrl(std::string_view url, TrainerEndpoint& endpoint) {
  // Into the request's first line goes nothing that could end it.
  const auto is_odd = [](unsigned char c) { return c <= ' ' || c >= 0x7f || c == '#'; };
  if (std::any_of(url.begin(), url.end(), is_odd)) return false;
  endpoint.is_tls = url.starts_with("https://");
  if (!endpoint.is_tls && !url.starts_with("http://")) return false;
  const std::string_view rest = url.substr(url.find("//") + 2);
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  endpoint.target = rest.substr(slash);
  if (!endpoint.target.starts_with('/')) endpoint.target.insert(0, "/");
  return SplitAuthority(rest.substr(0, slash), endpoint);
}

}  // namespace

std::optional<absl::StatusOr<TrainerEndpoint>> FindTrainer(const Environment& environment) {
  const std::optional<std::string> url = environment.Get(kTrainerUrlVar);
  if (!url || url->empty() || environment.Get(ddp::internal::kJobMarkVar)) return std::nullopt;
  TrainerEndpoint endpoint{.url = *url};
  if (!SplitUrl(*url, endpoint)) {
    return absl::InvalidArgumentError(absl::StrCat(kTrainerUrlVar, "=", EscapeControl(*url),
                                                   " is no URL like https://HOST:PORT/PATH"));
  }
  endpoint.ca_file = environment.Get(kTrainerCaVar).value_or("");
  endpoint.token_file = environment.Get(kTrainerTokenVar).value_or("");
  const auto lacks = [](const char* name, const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ", the file of ", what, ", is not set, though ", kTrainerUrlVar, " is"));
  };
  if (endpoint.token_file.empty()) return lacks(kTrainerTokenVar, "the token");
  if (endpoint.is_tls && endpoint.ca_file.empty()) return lacks(kTrainerCaVar, "the certificate");
  return endpoint;
}

}  // namespace ddprun::launcher
