#include "rendezvous/tls/identity.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "rendezvous/tls/stream.h"
#include "tests/rendezvous/tls/machine.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

using testing::Certificate;
using testing::MakeAuthority;
using testing::MakeServerCertificate;

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
  const Machine c(dir, "c", MakeServerCertificate(theirs, "DNS:c"),
                  ours.certificate + theirs.certificate);
  for (const auto& [client, server] : {std::pair{&a, &b}, {&b, &a}, {&c, &a}}) {
    const auto [up, down] = Talk(client->Read(), server->Read());
    CHECK_FALSE(down->is_ready());
    const bool is_known = up->trouble() == TlsStream::Trouble::kDistrusted ||
                          up->trouble() == TlsStream::Trouble::kRefused;
    CHECK_MESSAGE(is_known, up->error());
  }
}

TEST_CASE("identity: a certificate that expires is told apart, by its own machine and by others") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine a(dir, "a", MakeServerCertificate(authority, "DNS:a"), authority.certificate);
  const Machine b(dir, "b", MakeServerCertificate(authority, "DNS:b", -3600, 6),
                  authority.certificate);
  const auto good = a.Read(), expires = b.Read();
  CHECK(good->Check().ok());
  CHECK(expires->Check().ok());
  REQUIRE(testing::Eventually([&] { return !expires->Check().ok(); }));
  CHECK(absl::IsUnauthenticated(expires->Check()));
  CHECK(expires->Check().message() ==
        Contains("own certificate: " + b.files.cert + ": the certificate was valid until "));
  CHECK(good->Check().ok());
  for (const bool is_client : {true, false}) {
    const auto [up, down] = is_client ? Talk(expires, good) : Talk(good, expires);
    const TlsStream& old = is_client ? *up : *down;
    const TlsStream& other = is_client ? *down : *up;
    CHECK(other.trouble() == TlsStream::Trouble::kExpired);
    CHECK(other.error() ==
          "by this node's clock the other side's certificate has expired, or its authority's");
    CHECK(old.trouble() == TlsStream::Trouble::kExpired);
    CHECK(old.error() ==
          "by the other side's clock this node's certificate has expired, or its authority's");
  }
}

TEST_CASE(
    "identity: an authority that expires makes a node's certificate one that nobody believes") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority(-3600, 6);
  const Machine a(dir, "a", MakeServerCertificate(authority, "DNS:a"), authority.certificate);
  const auto identity = a.Read();
  REQUIRE(testing::Eventually([&] { return !identity->Check().ok(); }));
  CHECK(identity->Check().message() == Contains("own certificate: " + a.files.cert +
                                                ": other nodes would refuse it, by what is in " +
                                                a.files.ca + ": certificate has expired"));
}

void SpeakOnly(const TlsIdentity& identity, int version) {
  REQUIRE(SSL_CTX_set_min_proto_version(identity.context(), version) == 1);
  REQUIRE(SSL_CTX_set_max_proto_version(identity.context(), version) == 1);
}

TEST_CASE("identity: who speaks TLS 1.2 at most is refused, whatever certificate it has") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine a(dir, "a", MakeServerCertificate(authority, "DNS:a"), authority.certificate);
  const Machine b(dir, "b", MakeServerCertificate(authority, "DNS:b"), authority.certificate);
  const auto old = a.Read();
  SpeakOnly(*old, TLS1_2_VERSION);
  {
    // That alone is what is wrong with it.
    const auto as_old = b.Read();
    SpeakOnly(*as_old, TLS1_2_VERSION);
    const auto [up, down] = Talk(old, as_old);
    REQUIRE_MESSAGE(up->is_ready(), up->error());
    REQUIRE_MESSAGE(down->is_ready(), down->error());
  }
  for (const bool is_client_old : {true, false}) {
    const auto [up, down] = is_client_old ? Talk(old, b.Read()) : Talk(b.Read(), old);
    CHECK_FALSE(up->is_ready());
    CHECK_FALSE(down->is_ready());
    const TlsStream& ours = is_client_old ? *down : *up;
    CHECK_MESSAGE(ours.trouble() != TlsStream::Trouble::kNone, ours.error());
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

TEST_CASE("identity: a certificate that the machine's own authorities have not signed is refused") {
  const testing::TempDir dir;
  const Certificate ours = MakeAuthority(), theirs = MakeAuthority();
  const Certificate own = MakeServerCertificate(theirs, "DNS:a");
  const auto refusal = [](const Machine& machine) {
    return machine.files.cert + ": no authority in " + machine.files.ca +
           " has signed it, and other nodes would refuse it: name the file of the authority that "
           "has, and put the certificates between both behind it";
  };
  const Machine strange(dir, "strange", own, ours.certificate);
  CHECK(strange.Trouble() == refusal(strange));
  const Machine both(dir, "both", own, ours.certificate + theirs.certificate);
  CHECK(both.Read() != nullptr);
  const Machine by_itself(dir, "by_itself", theirs, ours.certificate);
  CHECK(by_itself.Trouble() == refusal(by_itself));
  // The authority's own certificate stands for itself.
  const Machine authority(dir, "authority", theirs, theirs.certificate);
  CHECK(authority.Read() != nullptr);
}

TEST_CASE("identity: certificates between a machine's and its authority are needed with it") {
  const testing::TempDir dir;
  const Certificate root = MakeAuthority(), between = testing::MakeAuthorityBelow(root);
  const Certificate own = MakeServerCertificate(between, "DNS:a");
  const Certificate chain = {own.certificate + between.certificate, own.key};
  const Machine whole(dir, "whole", chain, root.certificate);
  const Machine other(dir, "other", chain, root.certificate);
  const auto [up, down] = Talk(whole.Read(), other.Read());
  CHECK_MESSAGE(up->is_ready(), up->error());
  CHECK_MESSAGE(down->is_ready(), down->error());
  const Machine gap(dir, "gap", own, root.certificate);
  CHECK(gap.Trouble() == Contains("gap.cert: no authority in "));
}

TEST_CASE("identity: an intermediate authority alone is believed, and no other of its own's") {
  const testing::TempDir dir;
  const Certificate root = MakeAuthority(), of_job = testing::MakeAuthorityBelow(root);
  const Machine a(dir, "a", MakeServerCertificate(of_job, "DNS:a"), of_job.certificate);
  const Machine b(dir, "b", MakeServerCertificate(of_job, "DNS:b"), of_job.certificate);
  {
    const auto [up, down] = Talk(a.Read(), b.Read());
    CHECK_MESSAGE(up->is_ready(), up->error());
    CHECK_MESSAGE(down->is_ready(), down->error());
  }
  const Certificate other = testing::MakeAuthorityBelow(root);
  const Certificate strange = MakeServerCertificate(other, "DNS:c");
  const Machine c(dir, "c", {strange.certificate + other.certificate, strange.key},
                  root.certificate + of_job.certificate);
  const auto [up, down] = Talk(c.Read(), a.Read());
  CHECK_FALSE(down->is_ready());
}

TEST_CASE("identity: an authority that is not valid today is named with its file") {
  const testing::TempDir dir;
  const Certificate old = testing::MakeAuthority(-7200, -3600);
  const Machine machine(dir, "a", MakeServerCertificate(old, "DNS:a"), old.certificate);
  const std::string begin = machine.files.cert + ": other nodes would refuse it, by what is in " +
                            machine.files.ca + ": certificate has expired (\"an authority ";
  CHECK_MESSAGE(machine.Trouble().starts_with(begin), machine.Trouble());
}

TEST_CASE("identity: a certificate that expires within a week is warned of, an authority's too") {
  constexpr long kDay = 24 * 3600;
  const testing::TempDir dir;
  const Certificate lasting = MakeAuthority(-kDay, 400 * kDay);
  const auto warnings = [&](const Certificate& authority, long until_s) {
    return Machine(dir, "m", MakeServerCertificate(authority, "DNS:a", -30 * kDay, until_s),
                   authority.certificate)
        .Read()
        ->warnings();
  };
  CHECK(warnings(lasting, 7 * kDay + 3600).empty());
  CHECK(TlsIdentity::OfToken("9b1c7e02d4f8a6350e9c2b7d41f6a83c")->get()->warnings().empty());
  const std::string file = dir.File("m.cert");
  const std::vector<std::string> days = warnings(lasting, 3 * kDay + 3600);
  REQUIRE(days.size() == 1);
  CHECK(days[0] == Contains("the certificate in " + file + " expires in 3 days, at 20"));
  CHECK(warnings(lasting, 2 * 3600 + 60).at(0) == Contains(" expires in 2 hours, at 20"));
  CHECK(warnings(lasting, 600).at(0) == Contains(" expires in less than an hour, at 20"));
  const std::vector<std::string> above =
      warnings(MakeAuthority(-30 * kDay, kDay + 3600), 30 * kDay);
  // One of a day that is renewed each day.
  CHECK(Machine(dir, "m", MakeServerCertificate(lasting, "DNS:a", -3600, kDay), lasting.certificate)
            .Read()
            ->warnings()
            .empty());
  REQUIRE(above.size() == 1);
  CHECK(above[0] == Contains("an authority of the certificate in " + file + " (\""));
  CHECK(above[0] == Contains("\") expires in 1 day, at 20"));
}

TEST_CASE("identity: a certificate that stands among its authorities alone is warned of") {
  constexpr long kLong = 400L * 24 * 3600;
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority(-3600, kLong);
  const Certificate own = MakeServerCertificate(authority, "DNS:a", -3600, kLong);
  const Machine alone(dir, "alone", own, own.certificate);
  const std::vector<std::string> warnings = alone.Read()->warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == Contains(alone.files.ca + " holds the certificate in " + alone.files.cert +
                                " itself and not the authority"));
  const Machine both(dir, "both", own, own.certificate + authority.certificate);
  CHECK(both.Read()->warnings().empty());
  // All nodes of a job may share a certificate that has signed itself.
  CHECK(Machine(dir, "shared", authority, authority.certificate).Read()->warnings().empty());
}

}  // namespace
}  // namespace ddprun::rendezvous
