// A request's target, a line feed, its Host: from whoever reaches the dashboard's port.
#include <cstdint>
#include <cstdio>
#include <string>

#include "launcher/control/http_server.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {
namespace {

using fuzz::Promise;

std::string Encoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    char hex[4];
    std::snprintf(hex, sizeof(hex), "%%%02X", static_cast<unsigned char>(c));
    encoded += hex;
  }
  return encoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::TextOf(data, size));
  const size_t end = std::min(text.find('\n'), size);
  const std::string host = text.substr(std::min(end + 1, size));
  const bool is_allowed = IsHostAllowed(host, {"node1"});
  Promise(!is_allowed || !host.empty(), "no host is none of ours");
  Promise(!IsHostAllowed(host, {}) || is_allowed, "another name of ours takes none away");

  HttpRequest request;
  if (!ParseTarget(text.substr(0, end), request)) return 0;
  std::string target = "/" + Encoded(request.path.substr(1));
  char separator = '?';
  for (const auto& [key, value] : request.query) {
    target += separator + Encoded(key) + "=" + Encoded(value);
    separator = '&';
  }
  HttpRequest again;
  Promise(ParseTarget(target, again), "what was decoded can be encoded", target);
  Promise(again.path == request.path && again.query == request.query,
          "a target is decoded as it was encoded", target);
  return 0;
}

}  // namespace ddprun::launcher
