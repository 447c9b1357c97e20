// What of a request is believed. [pure]
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "launcher/control/http_server.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxParameters = 16;

bool Decode(std::string_view text, std::string& decoded) {
  decoded.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      int value = 0;
      for (size_t digit = 1; digit <= 2; ++digit) {
        const char c = i + digit < text.size() ? text[i + digit] : ' ';
        if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
        value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
      }
      decoded += static_cast<char>(value);
      i += 2;
    }
  }
  return true;
}

bool IsAddress(std::string_view host) {
  if (host.starts_with("[")) return host.ends_with("]");
  if (host.empty()) return false;
  for (const char c : host) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != '.') return false;
  }
  return true;
}

}  // namespace

bool IsHostAllowed(const std::string& host, const std::set<std::string>& names) {
  std::string_view name = host;
  const size_t colon = name.rfind(':');
  // "[::1]:80", "localhost:80", "[::1]"; a bare "::1" is no Host.
  if (colon != std::string_view::npos && name.find(']', colon) == std::string_view::npos) {
    name = name.substr(0, colon);
  }
  if (name.empty()) return false;
  if (IsAddress(name) || absl::EqualsIgnoreCase({name.data(), name.size()}, "localhost")) {
    return true;
  }
  for (const std::string& known : names) {
    if (absl::EqualsIgnoreCase({name.data(), name.size()}, known)) return true;
  }
  return false;
}

bool ParseTarget(const std::string& target, HttpRequest& request) {
  std::string_view rest = target;
  if (!rest.starts_with('/')) return false;
  const size_t question = rest.find('?');
  if (!Decode(rest.substr(0, question), request.path)) return false;
  if (question == std::string_view::npos) return true;
  rest.remove_prefix(question + 1);
  while (!rest.empty()) {
    if (request.query.size() == kMaxParameters) return false;
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string key, value;
    const std::string_view after = pair.substr(std::min(equals + 1, pair.size()));
    if (!Decode(pair.substr(0, equals), key) || !Decode(after, value)) return false;
    request.query[key] = std::move(value);
  }
  return true;
}

}  // namespace ddprun::launcher
