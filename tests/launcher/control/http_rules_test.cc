#include <doctest/doctest.h>

#include <string>

#include "launcher/control/http_server.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("http: a Host may be an address, localhost, or a name that is known") {
  for (const char* host : {"127.0.0.1", "127.0.0.1:8080", "10.0.0.7:1", "[::1]", "[::1]:8080",
                           "[fe80::1]:80", "localhost", "LocalHost:8080", "node1", "NODE1:8080"}) {
    CAPTURE(host);
    CHECK(IsHostAllowed(host, {"node1"}));
  }
}

TEST_CASE("http: another Host is a page that was rebound to this machine, or nonsense") {
  for (const char* host : {"", ":", ":80", "evil.example", "evil.example:8080", "node2", "node1.",
                           "node1.evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "evil[::1]", "a1.2.3.4", "node1@evil"}) {
    CAPTURE(host);
    CHECK(!IsHostAllowed(host, {"node1"}));
  }
  CHECK(!IsHostAllowed("node1", {}));
}

TEST_CASE("http: a target is a path and its parameters, decoded") {
  HttpRequest request;
  REQUIRE(ParseTarget("/logs?rank=3&text=a+b%20c%2Fd%26&empty=&flag", request));
  CHECK(request.path == "/logs");
  CHECK(request.query.size() == 4);
  CHECK(request.query["rank"] == "3");
  CHECK(request.query["text"] == "a b c/d&");
  CHECK(request.query["empty"] == "");
  CHECK(request.query["flag"] == "");
}

TEST_CASE("http: targets without a query, with empty pairs, with a name given twice") {
  HttpRequest request;
  REQUIRE(ParseTarget("/", request));
  CHECK(request.path == "/");
  REQUIRE(ParseTarget("/a%2fb?", request));
  CHECK(request.path == "/a/b");
  CHECK(request.query.empty());
  REQUIRE(ParseTarget("/x?&&a=1&a=2&=3&a==4", request));
  CHECK(request.query["a"] == "=4");
  CHECK(request.query[""] == "3");
}

TEST_CASE("http: no path, half an escape, or too many parameters are refused") {
  HttpRequest request;
  for (const char* target : {"", "*", "logs", "http://x/logs", "?a=1", "/%", "/%2", "/%zz",
                             "/a?b=%", "/a?%4=1", "/a?b=%4"}) {
    CAPTURE(target);
    CHECK(!ParseTarget(target, request));
  }
  std::string many = "/?";
  for (int i = 0; i < 17; ++i) many += "p" + std::to_string(i) + "=1&";
  HttpRequest other;
  CHECK(!ParseTarget(many, other));
  CHECK(other.query.size() == 16);
}

TEST_CASE("http: every byte may stand in a target, escaped") {
  std::string target = "/?all=";
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    char escaped[4];
    std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned>(byte));
    target += escaped;
    all += static_cast<char>(byte);
  }
  HttpRequest request;
  REQUIRE(ParseTarget(target, request));
  CHECK(request.query["all"] == all);
}

}  // namespace
}  // namespace ddprun::launcher
