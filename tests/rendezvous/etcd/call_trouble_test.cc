// gRPC's messages as gRPC 1.51 gave them, of servers that do each of these.
#include "rendezvous/etcd/call_trouble.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::rendezvous {
namespace {

using absl::StatusCode;

std::string InTls(const std::string& message) {
  return CallTrouble(StatusCode::kUnavailable, message, /*is_tls=*/true);
}

std::string Connecting(const std::string& why) {
  return "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:2379: " + why;
}

TEST_CASE("call trouble: what gRPC wraps around the cause is left out") {
  const auto plain = [](const std::string& message) {
    return CallTrouble(StatusCode::kUnavailable, message, /*is_tls=*/false);
  };
  CHECK(plain(Connecting("Failed to connect to remote host: Connection refused")) ==
        "Connection refused");
  CHECK(plain("failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:2379: odd: "
              "two") == "odd: two");
  CHECK(plain("last error: short") == "short");
  CHECK(plain("etcdserver: too many requests") == "etcdserver: too many requests");
  CHECK(plain("etcdserver: no leader") ==
        "it hears of no leader: it is cut off from most members, or they elect one (etcdserver: no "
        "leader)");
  CHECK(plain(Connecting("Socket closed")) == "Socket closed");
  CHECK(plain(Connecting("Failed to connect to remote host: Cannot assign requested address"))
            .find("no local port is free") == 0);
  CHECK(plain(std::string(1000, 'x')).size() == 300);
  CHECK(plain("a\x1b[0m") == "a\\x1b[0m");
  CHECK(CallTrouble(StatusCode::kDeadlineExceeded, "Deadline Exceeded", true) ==
        "no answer in time");
}

TEST_CASE("call trouble: each mistake with TLS has its sentence") {
  CHECK(InTls(Connecting("Ssl handshake failed: SSL_ERROR_SSL: error:0A000086:SSL routines::"
                         "certificate verify failed"))
            .find("its certificate is not believed") == 0);
  CHECK(InTls("failed to connect to all addresses; last error: UNKNOWN: Peer name 10.0.0.1 is not "
              "in peer certificate")
            .find("its certificate is for another name") == 0);
  CHECK(InTls(Connecting("Endpoint read failed")).find("it ended TLS when it saw") == 0);
  for (const char* alert : {"sslv3 alert bad certificate", "tlsv13 alert certificate required",
                            "tlsv1 alert unknown ca"}) {
    CHECK(InTls(Connecting(std::string("Ssl handshake failed: SSL_ERROR_SSL: error:0A000412:SSL "
                                       "routines::") +
                           alert))
              .find("it ended TLS when it saw") == 0);
  }
  CHECK(InTls(Connecting("Ssl handshake failed: SSL_ERROR_SSL: error:0A000410:SSL routines::sslv3 "
                         "alert handshake failure"))
            .find("Ssl handshake failed") == 0);
  for (const char* why : {"Socket closed", "recvmsg:Connection reset by peer",
                          "Ssl handshake failed: SSL_ERROR_SSL: error:0A00010B:SSL routines::wrong "
                          "version number"}) {
    CHECK(InTls(Connecting(why)).find("it does not answer in TLS") == 0);
  }
  CHECK(InTls("empty address list: ").find("gRPC finds no authorities") == 0);
}

TEST_CASE("call trouble: a connection that stood is not called one without TLS") {
  CHECK(InTls("Socket closed") == "Socket closed");
  CHECK(InTls("Endpoint read failed") == "Endpoint read failed");
}

}  // namespace
}  // namespace ddprun::rendezvous
