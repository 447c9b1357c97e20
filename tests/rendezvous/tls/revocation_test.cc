// Lists of revoked certificates beside the authorities.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "rendezvous/tls/stream.h"
#include "tests/rendezvous/tls/machine.h"
#include "tests/support/certificates.h"
#include "tests/support/holds.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

using testing::Certificate;
using testing::Holds;
using testing::MakeAuthority;
using testing::MakeAuthorityBelow;
using testing::MakeRevocationList;
using testing::MakeServerCertificate;

void CheckBelieve(const Machine& client, const Machine& server) {
  const auto [up, down] = Talk(client.Read(), server.Read());
  CHECK_MESSAGE(up->is_ready(), up->error());
  CHECK_MESSAGE(down->is_ready(), down->error());
}

TEST_CASE("revocation: a node whose certificate is in the list is believed by nobody who has it") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate gone = MakeServerCertificate(authority, "DNS:b");
  const std::string list = MakeRevocationList(authority, {gone});
  const Machine a(dir, "a", MakeServerCertificate(authority, "DNS:a"),
                  authority.certificate + list);
  const Machine b(dir, "b", gone, authority.certificate);
  const Machine c(dir, "c", MakeServerCertificate(authority, "DNS:c"),
                  list + authority.certificate);
  for (const auto& [client, server] : {std::pair(&a, &b), {&b, &a}}) {
    const auto [up, down] = Talk(client->Read(), server->Read());
    CHECK_FALSE(down->is_ready());
    Holds(up->error(), client == &a ? "certificate revoked" : "alert certificate revoked");
  }
  CheckBelieve(a, c);
  CheckBelieve(c, a);
}

TEST_CASE("revocation: a machine whose own certificate is in its list is told so at the start") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate gone = MakeServerCertificate(authority, "DNS:a");
  const Machine a(dir, "a", gone, authority.certificate + MakeRevocationList(authority, {gone}));
  const std::string begin = a.files.cert + ": other nodes would refuse it, by what is in " +
                            a.files.ca + ": certificate revoked (\"a server ";
  const std::string trouble = a.Trouble();
  CHECK_MESSAGE(trouble.starts_with(begin), trouble);
}

TEST_CASE("revocation: an authority without a list is believed, and the others' are obeyed") {
  const testing::TempDir dir;
  const Certificate ours = MakeAuthority(), theirs = MakeAuthority();
  const Certificate gone = MakeServerCertificate(theirs, "DNS:c");
  const std::string both =
      ours.certificate + theirs.certificate + MakeRevocationList(theirs, {gone});
  const Machine a(dir, "a", MakeServerCertificate(ours, "DNS:a"), both);
  const Machine b(dir, "b", MakeServerCertificate(theirs, "DNS:b"), both);
  const Machine c(dir, "c", gone, ours.certificate + theirs.certificate);
  CheckBelieve(a, b);
  CheckBelieve(b, a);
  const auto [up, down] = Talk(c.Read(), a.Read());
  CHECK_FALSE(down->is_ready());
}

TEST_CASE("revocation: an authority between that is revoked vouches for nobody") {
  const testing::TempDir dir;
  const Certificate root = MakeAuthority(), good = MakeAuthorityBelow(root),
                    gone = MakeAuthorityBelow(root);
  const auto below = [](const Certificate& between) {
    const Certificate own = MakeServerCertificate(between, "DNS:a");
    return Certificate{own.certificate + between.certificate, own.key};
  };
  const std::string list = MakeRevocationList(root, {gone});
  const Machine a(dir, "a", below(good), root.certificate + list);
  const Machine b(dir, "b", below(gone), root.certificate);
  const Machine c(dir, "c", below(good), root.certificate);
  CheckBelieve(a, c);
  const auto [up, down] = Talk(b.Read(), a.Read());
  CHECK_FALSE(down->is_ready());
  // One that is believed without its own authority is in no list that counts here.
  const Machine alone(dir, "alone", MakeServerCertificate(good, "DNS:d"),
                      good.certificate + MakeRevocationList(good, {}));
  CHECK(alone.Read() != nullptr);
}

TEST_CASE("revocation: a list that is not valid today is named with its file and date") {
  const testing::TempDir dir;
  const Certificate ours = MakeAuthority(), theirs = MakeAuthority();
  const Certificate own = MakeServerCertificate(ours, "DNS:a");
  // The other authority's, too: its nodes would be refused.
  for (const Certificate& authority : {ours, theirs}) {
    const std::string both = ours.certificate + theirs.certificate;
    const std::string begin = ".ca: the list of revoked certificates of \"an authority ";
    const Machine old(dir, "old", own, both + MakeRevocationList(authority, {}, -7200, -3600));
    const std::string was = old.Trouble();
    Holds(was, "/old" + begin);
    Holds(was, "\" was valid until 20");
    Holds(was, " UTC, and nobody of that authority would be believed; put its newest list there");
    const Machine early(dir, "early", own, both + MakeRevocationList(authority, {}, 3600, 7200));
    const std::string will = early.Trouble();
    Holds(will, "/early" + begin);
    Holds(will, "\" is not valid before 20");
    Holds(will, " UTC; is this machine's clock right?");
    const Machine today(dir, "today", own, both + MakeRevocationList(authority, {}, -60, 3600));
    CHECK(today.Read() != nullptr);
  }
}

TEST_CASE("revocation: a list that its authority has not signed is refused") {
  const testing::TempDir dir;
  const Certificate ours = MakeAuthority(), theirs = MakeAuthority();
  const Certificate own = MakeServerCertificate(ours, "DNS:a");
  const std::string forged = MakeRevocationList({ours.certificate, theirs.key}, {});
  const Machine a(dir, "a", own, ours.certificate + forged);
  Holds(a.Trouble(), "CRL signature failure");
}

}  // namespace
}  // namespace ddprun::rendezvous
