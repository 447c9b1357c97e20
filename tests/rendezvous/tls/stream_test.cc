#include "rendezvous/tls/stream.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/tls/identity.h"
#include "tests/support/contains.h"

namespace ddprun::rendezvous {
namespace {

using Role = TlsStream::Role;
using Trouble = TlsStream::Trouble;

std::shared_ptr<const TlsIdentity> Token(const std::string& text, const std::string& run = "") {
  auto identity = TlsIdentity::OfToken(text, run);
  REQUIRE_MESSAGE(identity.ok(), identity.status().ToString());
  return *std::move(identity);
}

// Two ends, and a wire between them that gives `piece` bytes at a time.
struct Wire {
  Wire(std::shared_ptr<const TlsIdentity> for_client, std::shared_ptr<const TlsIdentity> for_server,
       size_t piece = 1 << 20, TlsPurpose purpose = TlsPurpose::kGreeting)
      : client(std::move(for_client), Role::kClient, purpose),
        server(std::move(for_server), Role::kServer),
        piece(piece) {}

  // Carries until both sides have nothing to say. False: one of them has ended it.
  bool Carry() {
    for (bool is_more = true; is_more;) {
      is_more = false;
      for (const bool is_upward : {true, false}) {
        TlsStream& from = is_upward ? client : server;
        TlsStream& to = is_upward ? server : client;
        const std::string bytes = from.TakeOutgoing();
        (is_upward ? upward : downward) += bytes;
        is_more = is_more || !bytes.empty();
        for (size_t at = 0; at < bytes.size(); at += piece) {
          if (!to.Receive(bytes.substr(at, piece), is_upward ? at_server : at_client)) {
            // The other one hears why.
            std::string ignored;
            from.Receive(to.TakeOutgoing(), ignored);
            return false;
          }
        }
      }
    }
    return true;
  }

  std::string Errors() const { return "client: " + client.error() + "; server: " + server.error(); }

  TlsStream client;
  TlsStream server;
  size_t piece;
  std::string at_client, at_server;  // what arrived
  std::string upward, downward;      // what a listener has seen
};

TEST_CASE("tls: who has the same token is heard, and nobody in between reads along") {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1} << 20}) {
    Wire wire(Token("the same for both"), Token("the same for both"), piece);
    REQUIRE_MESSAGE(wire.Carry(), wire.Errors());
    REQUIRE(wire.client.is_ready());
    REQUIRE(wire.server.is_ready());
    wire.client.Send("MASTER_ADDR");
    wire.server.Send(std::string(100000, 'x'));
    REQUIRE(wire.Carry());
    CHECK(wire.at_server == "MASTER_ADDR");
    CHECK(wire.at_client == std::string(100000, 'x'));
    CHECK(wire.upward != Contains("MASTER"));
    CHECK(wire.downward != Contains("xxxx"));
  }
}

TEST_CASE("tls: with another token nobody is heard, and both sides know why") {
  Wire wire(Token("this job's token"), Token("that job's token"));
  CHECK_FALSE(wire.Carry());
  CHECK_FALSE(wire.client.is_ready());
  CHECK_FALSE(wire.server.is_ready());
  CHECK(wire.server.trouble() == Trouble::kOtherToken);
  CHECK(wire.client.trouble() == Trouble::kOtherToken);
  CHECK_FALSE(wire.client.error().empty());
  std::string plain;
  CHECK_FALSE(wire.server.Receive("more", plain));
  CHECK(plain.empty());
}

TEST_CASE("tls: a server knows what a connection is for, by the key that its client has") {
  for (const std::string servers_run : {"job1", ""}) {
    for (const TlsPurpose purpose :
         {TlsPurpose::kGreeting, TlsPurpose::kRendezvous, TlsPurpose::kStore}) {
      Wire wire(Token("the token", "job1"), Token("the token", servers_run), 1 << 20, purpose);
      REQUIRE_MESSAGE(wire.Carry(), wire.Errors());
      for (const TlsPurpose asked :
           {TlsPurpose::kGreeting, TlsPurpose::kRendezvous, TlsPurpose::kStore}) {
        CHECK(wire.server.is_for(asked) == (asked == purpose));
      }
    }
  }
}

TEST_CASE("tls: with the same token another run's server takes a greeting and nothing else") {
  Wire greeting(Token("the token", "job1"), Token("the token", "job2"));
  CHECK_MESSAGE(greeting.Carry(), greeting.Errors());
  for (const TlsPurpose purpose : {TlsPurpose::kRendezvous, TlsPurpose::kStore}) {
    Wire wire(Token("the token", "job1"), Token("the token", "job2"), 1 << 20, purpose);
    CHECK_FALSE(wire.Carry());
    CHECK(wire.server.trouble() == Trouble::kDistrusted);
    CHECK(wire.client.trouble() == Trouble::kRefused);
    CHECK_FALSE(wire.client.is_ready());
  }
}

// As from a network that turns a connection back: its sender has the token, too.
TEST_CASE("tls: who has a key for one purpose is not heard for another one") {
  Wire wire(Token("the token", "job1"), Token("the token", "job1"), 1 << 20, TlsPurpose::kStore);
  REQUIRE(wire.Carry());
  CHECK(wire.server.is_for(TlsPurpose::kStore));
  CHECK_FALSE(wire.server.is_for(TlsPurpose::kRendezvous));
}

// A TLS client that has no key at all, as any program has it.
TEST_CASE("tls: a client without a token is refused") {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(context);
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, out);
  SSL_set_connect_state(ssl);
  SSL_do_handshake(ssl);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(out, &bytes);
  TlsStream server(Token("the job's"), Role::kServer);
  std::string plain;
  CHECK_FALSE(server.Receive({bytes, static_cast<size_t>(size)}, plain));
  CHECK(server.trouble() == Trouble::kDistrusted);
  CHECK(server.TakeOutgoing().front() == kTlsAlertByte);
  SSL_free(ssl);
  SSL_CTX_free(context);
}

TEST_CASE("tls: what is no TLS is told apart from what is not of the job") {
  for (const std::string bytes : {"\x01 ddprun/1 hello\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                  "GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"}) {
    TlsStream server(Token("the job's"), Role::kServer);
    std::string plain;
    CHECK_FALSE(server.Receive(bytes, plain));
    CHECK(server.trouble() == Trouble::kNoTls);
  }
}

TEST_CASE("tls: a greeting without an end is not kept") {
  TlsStream server(Token("the job's"), Role::kServer);
  // The largest client hello, in records whose end never comes.
  std::string records;
  std::string hello("\x01\x01\x00\x00", 4);  // 64 KiB long
  for (int i = 0; i < 8; ++i) {
    const std::string body = hello + std::string(16384 - hello.size(), 'x');
    hello.clear();
    records += std::string("\x16\x03\x01\x40\x00", 5) + body;
  }
  std::string plain;
  bool goes_on = true;
  size_t taken = 0;
  for (; taken < records.size() && goes_on; taken += 1000) {
    goes_on = server.Receive(records.substr(taken, 1000), plain);
  }
  CHECK_FALSE(goes_on);
  CHECK(taken <= TlsStream::kMaxHandshakeBytes + 1000);
}

TEST_CASE("tls: a byte that was changed on the way ends the connection") {
  Wire wire(Token("the same"), Token("the same"));
  REQUIRE(wire.Carry());
  wire.client.Send("hello");
  std::string bytes = wire.client.TakeOutgoing();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  CHECK_FALSE(wire.server.Receive(bytes, wire.at_server));
  CHECK(wire.at_server.empty());
}

TEST_CASE("tls: what was recorded cannot be said again") {
  Wire wire(Token("the same"), Token("the same"));
  REQUIRE(wire.Carry());
  wire.client.Send("leave");
  REQUIRE(wire.Carry());
  TlsStream again(Token("the same"), Role::kServer);
  std::string plain;
  again.Receive(wire.upward, plain);
  CHECK(plain.empty());
  CHECK_FALSE(again.is_ready());
}

}  // namespace
}  // namespace ddprun::rendezvous
