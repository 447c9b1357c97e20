#include "rendezvous/net/socket_address.h"

#include <doctest/doctest.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include "tests/support/in_child.h"
#include "tests/support/skip.h"

namespace ddprun::rendezvous {
namespace {

using testing::InChild;

std::string Ip(const std::string& ip, uint16_t port = 29400) {
  const auto address = ParseIp(ip, port);
  REQUIRE_MESSAGE(address, ip);
  return AddressText(*address);
}

TEST_CASE("address: gRPC is told it as a URI, and a text is an address or is not") {
  CHECK(GrpcTarget(*ParseIp("10.0.0.2", 29400)) == "ipv4:10.0.0.2:29400");
  CHECK(GrpcTarget(*ParseIp("::1", 29400)) == "ipv6:%5B::1%5D:29400");
  CHECK(GrpcTarget(*ParseIp("::ffff:10.0.0.2", 29400)) == "ipv4:10.0.0.2:29400");
  // By the interface's number or name; we name it.
  const std::string lo = std::to_string(if_nametoindex("lo"));
  CHECK(GrpcTarget(*ParseIp("fe80::1%" + lo, 29400)) == "ipv6:%5Bfe80::1%25lo%5D:29400");
  CHECK(IpText(*ParseIp("fe80::1%" + lo, 29400)) == "fe80::1%lo");
  for (const char* ip : {"fe80::1%no-such-interface", "10.1", "1", "", "host", "10.0.0.2.3"}) {
    CHECK_MESSAGE(!ParseIp(ip, 1), ip);
  }
}

TEST_CASE("address: scope, port and IP tell addresses apart, the family of an IPv4 one does not") {
  CHECK(Ip("::ffff:10.0.0.2") == Ip("10.0.0.2"));
  CHECK(Ip("::ffff:10.0.0.2%7") == Ip("10.0.0.2"));  // IPv4 has no scopes
  CHECK(Ip("10.0.0.2") != Ip("10.0.0.3"));
  CHECK(Ip("10.0.0.2", 1) != Ip("10.0.0.2", 2));
  CHECK(Ip("fe80::1%lo") != Ip("fe80::1%4711"));
  CHECK(AddressText({}) != Ip("0.0.0.0", 0));
}

TEST_CASE("resolver: an address is answered as it is, a name that cannot be is not found") {
  const Resolution literal = ResolveName("::1", 29400);
  REQUIRE(literal.outcome == Resolution::Outcome::kFound);
  CHECK(AddressText(literal.addresses.front()) == "[::1]:29400");
  CHECK(ResolveName("-not a name-", 1).outcome != Resolution::Outcome::kFound);
}

// HostName in a process that sees the machine as named `name`; "not allowed": it may not.
std::string NameOfMachineNamed(const std::string& name) {
  return InChild({}, [&name] {
    const bool is_named = unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
    return is_named ? HostName() : "not allowed";
  });
}

TEST_CASE("host name: it is the machine's, up to the longest there may be") {
  const std::string longest(64, 'n');
  const std::string name = NameOfMachineNamed(longest);
  if (name == "not allowed") return testing::SkipTest("no right to a host name of its own");
  CHECK(name == longest);
}

TEST_CASE("host name: a machine without a name is localhost") {
  const std::string name = NameOfMachineNamed("");
  if (name == "not allowed") return testing::SkipTest("no right to a host name of its own");
  CHECK(name == "localhost");
}

}  // namespace
}  // namespace ddprun::rendezvous
