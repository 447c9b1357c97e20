#include "rendezvous/tls/identity.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/tls/stream.h"
#include "tests/support/certificates.h"
#include "tests/support/files.h"
#include "tests/support/holds.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

using testing::Certificate;
using testing::Holds;
using testing::MakeAuthority;
using testing::MakeServerCertificate;

// Files of one machine of a job.
struct Machine {
  Machine(const testing::TempDir& dir, const std::string& name, const Certificate& own,
          const std::string& ca)
      : files{.cert = dir.File(name + ".cert"),
              .key = dir.File(name + ".key"),
              .ca = dir.File(name + ".ca")} {
    testing::WriteFile(files.cert, own.certificate);
    testing::WriteFile(files.key, own.key);
    testing::WriteFile(files.ca, ca);
  }
  std::shared_ptr<const TlsIdentity> Read() const {
    auto identity = TlsIdentity::OfPem(files);
    REQUIRE_MESSAGE(identity.ok(), identity.status().ToString());
    return *std::move(identity);
  }
  std::string Trouble() const {
    const auto identity = TlsIdentity::OfPem(files);
    CHECK(absl::IsInvalidArgument(identity.status()));
    return std::string(identity.status().message());
  }
  TlsIdentity::PemFiles files;
};

// Both ends, as far as they get.
std::pair<std::unique_ptr<TlsStream>, std::unique_ptr<TlsStream>> Talk(
    std::shared_ptr<const TlsIdentity> client, std::shared_ptr<const TlsIdentity> server) {
  auto up = std::make_unique<TlsStream>(std::move(client), TlsStream::Role::kClient);
  auto down = std::make_unique<TlsStream>(std::move(server), TlsStream::Role::kServer);
  std::string ignored;
  for (int i = 0; i < 4; ++i) {
    if (const std::string bytes = up->TakeOutgoing(); !bytes.empty()) down->Receive(bytes, ignored);
    if (const std::string bytes = down->TakeOutgoing(); !bytes.empty()) up->Receive(bytes, ignored);
  }
  return {std::move(up), std::move(down)};
}

TEST_CASE("identity: machines with certificates of one authority believe each other") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine a(dir, "a", MakeServerCertificate(authority, "DNS:a"), authority.certificate);
  const Machine b(dir, "b", MakeServerCertificate(authority, "DNS:b"), authority.certificate);
  const auto [up, down] = Talk(a.Read(), b.Read());
  CHECK_MESSAGE(up->is_ready(), up->error());
  CHECK_MESSAGE(down->is_ready(), down->error());
}

TEST_CASE("identity: a certificate of another authority is believed by neither side") {
  const testing::TempDir dir;
  const Certificate ours = MakeAuthority(), theirs = MakeAuthority();
  const Machine a(dir, "a", MakeServerCertificate(ours, "DNS:a"), ours.certificate);
  const Machine b(dir, "b", MakeServerCertificate(theirs, "DNS:b"), theirs.certificate);
  // One that believes everybody's authority, but whose own is not believed.
  const Machine c(dir, "c", MakeServerCertificate(theirs, "DNS:c"), ours.certificate);
  for (const auto& [client, server] : {std::pair{&a, &b}, {&b, &a}, {&c, &a}}) {
    const auto [up, down] = Talk(client->Read(), server->Read());
    CHECK_FALSE(down->is_ready());
    const bool is_known = up->trouble() == TlsStream::Trouble::kDistrusted ||
                          up->trouble() == TlsStream::Trouble::kRefused;
    CHECK_MESSAGE(is_known, up->error());
  }
}

TEST_CASE("identity: a token and a certificate do not go together") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine a(dir, "a", MakeServerCertificate(authority, "DNS:a"), authority.certificate);
  auto token = TlsIdentity::OfToken("a token");
  REQUIRE(token.ok());
  {
    const auto [up, down] = Talk(*token, a.Read());
    CHECK_FALSE(up->is_ready());
    CHECK_FALSE(down->is_ready());
  }
  const auto [up, down] = Talk(a.Read(), *token);
  CHECK_FALSE(up->is_ready());
  CHECK_FALSE(down->is_ready());
}

TEST_CASE("identity: what is wrong with a file is said, and which file it is") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const Certificate other = MakeServerCertificate(authority, "DNS:b");
  const Machine good(dir, "good", own, authority.certificate);
  Machine missing = good;
  missing.files.cert = dir.File("nothing");
  CHECK(Holds(missing.Trouble(), "nothing: No such file or directory"));
  const Machine no_pem(dir, "no_pem", {"no certificate", own.key}, authority.certificate);
  CHECK(Holds(no_pem.Trouble(), "no_pem.cert: no certificate in PEM form can be read"));
  const Machine no_key(dir, "no_key", {own.certificate, "no key"}, authority.certificate);
  CHECK(Holds(no_key.Trouble(), "no_key.key: no key in PEM form, without a password"));
  const Machine others(dir, "others", {own.certificate, other.key}, authority.certificate);
  CHECK_MESSAGE(Holds(others.Trouble(), "others.key: it is not the key of the certificate in "),
                others.Trouble());
  const Machine no_ca(dir, "no_ca", own, "no authority");
  CHECK(Holds(no_ca.Trouble(), "no_ca.ca: no certificate in PEM form can be read"));
}

TEST_CASE("identity: a certificate that is not valid today is refused with its date") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine old(dir, "old", MakeServerCertificate(authority, "DNS:a", -7200, -3600),
                    authority.certificate);
  CHECK_MESSAGE(Holds(old.Trouble(), "old.cert: the certificate was valid until 20"),
                old.Trouble());
  const Machine early(dir, "early", MakeServerCertificate(authority, "DNS:a", 3600, 7200),
                      authority.certificate);
  CHECK_MESSAGE(Holds(early.Trouble(), "early.cert: the certificate is not valid before 20"),
                early.Trouble());
}

}  // namespace
}  // namespace ddprun::rendezvous
