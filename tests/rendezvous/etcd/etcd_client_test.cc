// The client against a real etcd, whose members are killed and stopped.
#include "rendezvous/etcd/etcd_client.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "rendezvous/base/steady_clock.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EtcdCluster;
using testing::SkipTest;
using testing::WhyNoEtcd;

TimePoint Soon() { return SteadyNow() + seconds(20); }

// What comes of reading a key. A member that gives no answer in time is asked again, as its users
// do: on a busy machine one that is well may take longer.
absl::Status AnswerOf(EtcdClient& client) {
  const TimePoint by = Soon();
  absl::Status status;
  do {
    status = client.Get("k", by).status();
  } while (absl::IsDeadlineExceeded(status) && SteadyNow() < by);
  return status;
}

absl::Status AnswerOf(EtcdClient&& client) { return AnswerOf(client); }

EtcdOptions OptionsOf(const EtcdCluster& cluster) {
  EtcdOptions options{.members = {}, .prefix = "/ddprun"};
  for (size_t i = 0; i < cluster.size(); ++i) {
    options.members.push_back({"127.0.0.1", cluster.port(i)});
  }
  return options;
}

EtcdOptions OneMember(uint16_t port) {
  return {.members = {{"127.0.0.1", port}}, .prefix = "/ddprun"};
}

EtcdTransaction PutWhere(const std::string& key, int64_t revision, const std::string& value,
                         int64_t lease = 0) {
  return {.guards = {{.key = key, .revision = revision}},
          .puts = {{.key = key, .value = value, .lease = lease}},
          .deletes = {},
          .reads = {key}};
}

TEST_CASE("etcd: a transaction is applied where nobody has written since, and only there") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  EtcdClient client(OptionsOf(cluster));
  auto first = client.Apply(PutWhere("k", 0, "one"), Soon());
  REQUIRE_MESSAGE(first.ok(), first.status().ToString());
  REQUIRE(first->is_applied);
  const auto again = client.Apply(PutWhere("k", 0, "two"), Soon());
  REQUIRE(again.ok());
  CHECK_FALSE(again->is_applied);
  REQUIRE(again->read.at(0));
  CHECK(again->read[0]->value == "one");
  CHECK(again->read[0]->revision == first->revision);
  EtcdTransaction both = PutWhere("k", first->revision, "three");
  both.guards.push_back({.key = "other", .revision = 5});
  CHECK_FALSE(client.Apply(both, Soon())->is_applied);
  both.guards[1].revision = 0;
  both.reads.push_back("other");
  const auto third = client.Apply(both, Soon());
  REQUIRE(third.ok());
  CHECK(third->is_applied);
  CHECK(third->revision > first->revision);
  CHECK(third->read.at(0)->revision == third->revision);
  CHECK_FALSE(third->read.at(1));
  const auto key = client.Get("k", Soon());
  REQUIRE(key.ok());
  CHECK((*key)->value == "three");
  CHECK((*key)->revision == third->revision);
  CHECK_FALSE(client.Get("other", Soon())->has_value());
}

TEST_CASE("etcd: a lease carries its keys, is renewed, and takes them along") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  EtcdClient client(OptionsOf(cluster));
  const auto granted = client.Grant(77, seconds(30), Soon());
  REQUIRE_MESSAGE(granted.ok(), granted.status().ToString());
  CHECK(*granted == seconds(30));
  // The grant whose answer was lost is asked for again.
  CHECK(*client.Grant(77, seconds(30), Soon()) == seconds(30));
  REQUIRE(client.Apply(PutWhere("k", 0, "v", 77), Soon()).ok());
  CHECK((*client.Get("k", Soon()))->lease == 77);
  CHECK(*client.KeepAlive(77, Soon()) == seconds(30));
  CHECK(client.Revoke(77, Soon()).ok());
  CHECK_FALSE(client.Get("k", Soon())->has_value());
  CHECK(*client.KeepAlive(77, Soon()) == Duration{0});
  CHECK(client.Revoke(77, Soon()).ok());
  CHECK(absl::IsAborted(client.Apply(PutWhere("k", 0, "v", 77), Soon()).status()));
}

TEST_CASE("etcd: a member that is killed or stopped costs a moment, whichever it is") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster cluster;
  EtcdClient client(OptionsOf(cluster));
  const auto works = [&] {
    const TimePoint until = SteadyNow() + seconds(30);
    while (SteadyNow() < until) {
      if (client.Get("k", SteadyNow() + seconds(3)).ok()) return true;
    }
    return false;
  };
  REQUIRE(works());
  for (size_t i = 0; i < cluster.size(); ++i) {
    cluster.member(i).Signal(SIGSTOP);
    const TimePoint began = SteadyNow();
    CHECK(works());
    MESSAGE("member ", i, " stopped: ", std::chrono::duration<double>(SteadyNow() - began).count(),
            " s");
    cluster.member(i).Signal(SIGCONT);
    REQUIRE(cluster.AwaitWrites());
  }
  const size_t leading = cluster.LeadingMember();
  cluster.member(leading).Signal(SIGKILL);
  const TimePoint began = SteadyNow();
  CHECK(works());
  MESSAGE("leader killed: ", std::chrono::duration<double>(SteadyNow() - began).count(), " s");
  // Without a majority there is no answer, and that is said in time.
  cluster.member((leading + 1) % 3).Signal(SIGKILL);
  const TimePoint asked = SteadyNow();
  const auto none = client.Get("k", SteadyNow() + seconds(5));
  CHECK_FALSE(none.ok());
  CHECK_FALSE(IsFinal(none.status()));
  CHECK(SteadyNow() - asked < seconds(5));
}

TEST_CASE("etcd: a name with several addresses is tried at each of them") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  EtcdOptions options = OptionsOf(cluster);
  options.members[0].host = "localhost";
  // Nobody listens at the first.
  EtcdClient client(options, [](const std::string&, uint16_t port) {
    return Resolution{Resolution::Outcome::kFound,
                      "",
                      {*ParseIp("127.0.0.9", port), *ParseIp("127.0.0.1", port)}};
  });
  const auto first = client.Get("k", Soon());
  CHECK_MESSAGE(first.ok(), first.status().ToString());
}

TEST_CASE("etcd: what is not etcd, not there or not known is named") {
  const ReservedPort nobody;
  EtcdClient closed(OneMember(nobody.port()));
  auto status = AnswerOf(closed);
  CHECK(absl::IsUnavailable(status));
  CHECK_MESSAGE(status.message() ==
                    "etcd at 127.0.0.1:" + std::to_string(nobody.port()) + ": Connection refused",
                status.ToString());
  const ForeignServer web("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  EtcdClient old(OneMember(web.port()));
  status = AnswerOf(old);
  CHECK(status.message() == Contains("expected etcd 3's client port"));
  EtcdOptions unknown = OneMember(1);
  unknown.members[0].host = "no-such-name";
  EtcdClient lost(unknown, [](const std::string&, uint16_t) {
    return Resolution{Resolution::Outcome::kNoSuchName, "Name or service not known", {}};
  });
  status = AnswerOf(lost);
  CHECK_MESSAGE(IsFinal(status), status.ToString());
  CHECK(status.message() == Contains("cannot resolve \"no-such-name\""));
}

TEST_CASE("etcd: asked in TLS, one that speaks in the clear alone is named once and for all") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  EtcdOptions options = OptionsOf(cluster);
  options.is_tls = true;
  auto status = AnswerOf(EtcdClient(options));
  CHECK_MESSAGE(absl::IsFailedPrecondition(status), status.ToString());
  CHECK(status.message() == "etcd at 127.0.0.1:" + std::to_string(cluster.port(0)) +
                                ": it speaks without TLS alone: leave out --rdzv-conf "
                                "protocol=https, or give etcd a certificate");
  // Another member may have it, and be back later.
  const ReservedPort nobody;
  options.members.push_back({"127.0.0.1", nobody.port()});
  status = AnswerOf(EtcdClient(options));
  CHECK_MESSAGE(absl::IsUnavailable(status), status.ToString());
  // Nor is what ends TLS and is no etcd known to stay so.
  const ForeignServer web("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  EtcdOptions in_tls = OneMember(web.port());
  in_tls.is_tls = true;
  status = AnswerOf(EtcdClient(in_tls));
  CHECK_MESSAGE(absl::IsUnavailable(status), status.ToString());
}

TEST_CASE("etcd: asked in TLS, a name's first address without it is passed over for the next") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const testing::TempDir files;
  const testing::Certificate authority = testing::MakeAuthority();
  const testing::Certificate server =
      MakeServerCertificate(authority, "IP:127.0.0.1,DNS:etcd.test");
  std::ofstream(files.File("ca")) << authority.certificate;
  std::ofstream(files.File("cert")) << server.certificate;
  std::ofstream(files.File("key")) << server.key;
  const EtcdCluster plain({.members = 1});
  const EtcdCluster in_tls(
      {.members = 1,
       .more = {"--cert-file=" + files.File("cert"), "--key-file=" + files.File("key")},
       .scheme = "https",
       .ctl = {"--cacert=" + files.File("ca")}});
  EtcdOptions options = OneMember(2379);
  options.members[0].host = "etcd.test";
  options.is_tls = true;
  options.authority_file = files.File("ca");
  EtcdClient client(options, [&](const std::string&, uint16_t) {
    return Resolution{
        Resolution::Outcome::kFound,
        "",
        {*ParseIp("127.0.0.1", plain.port(0)), *ParseIp("127.0.0.1", in_tls.port(0))}};
  });
  const auto status = AnswerOf(client);
  CHECK_MESSAGE(status.ok(), status.ToString());
  // Where no address has TLS, that is said, also where nobody listens at the other one.
  const ReservedPort nobody;
  for (const bool is_closed : {false, true}) {
    EtcdClient none(options, [&](const std::string&, uint16_t) {
      const uint16_t next = is_closed ? nobody.port() : plain.port(0);
      return Resolution{Resolution::Outcome::kFound,
                        "",
                        {*ParseIp("127.0.0.1", next), *ParseIp("127.0.0.1", plain.port(0))}};
    });
    const auto why = AnswerOf(none);
    CHECK_MESSAGE(absl::IsFailedPrecondition(why), why.ToString());
  }
}

TEST_CASE("etcd: a resolver that hangs is waited for as long as a member, and by nobody's end") {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  EtcdOptions unknown = OneMember(1);
  unknown.members[0].host = "slow-name";
  {
    EtcdClient client(unknown, [ended](const std::string&, uint16_t) {
      ended.wait();
      return Resolution{};
    });
    const auto status = AnswerOf(client);
    CHECK(absl::IsUnavailable(status));
    CHECK_MESSAGE(
        status.message() ==
            "etcd at slow-name:1: cannot resolve \"slow-name\": the resolver does not answer",
        status.ToString());
    client.Cancel();
    CHECK_FALSE(client.Get("k", Soon()).ok());
  }
  end.set_value();  // only now: the client was gone before
}

TEST_CASE("etcd: the member that answered last is asked first, by the next client too") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  const EtcdCluster cluster({.members = 1});
  const ForeignServer mute("");
  EtcdOptions options = OneMember(mute.port());
  options.members.push_back({"127.0.0.1", cluster.port(0)});
  EtcdClient first(options);
  CHECK(first.current_member() == 0);
  REQUIRE(first.Get("k", Soon()).ok());
  CHECK(first.current_member() == 1);
  // It has less time than a silent member would take.
  EtcdClient second(options, ResolveName, first.current_member());
  CHECK(second.Get("k", SteadyNow() + EtcdClient::kMemberPatience).ok());
}

TEST_CASE("etcd: a call that nobody wants any more ends at once") {
  // Accepts no connection's bytes: a call would wait for its time.
  const ForeignServer mute("");
  EtcdClient client(OneMember(mute.port()));
  std::thread canceller([&client] { client.Cancel(); });
  const auto status = client.Get("k", SteadyNow() + seconds(30)).status();
  canceller.join();
  CHECK_FALSE(status.ok());
  CHECK(absl::IsCancelled(AnswerOf(client)));
}

TEST_CASE("etcd: the address of this machine is the one that etcd is reached from") {
  EtcdClient client(OneMember(2379));
  CHECK(client.LocalAddress() == "127.0.0.1");
}

}  // namespace
}  // namespace ddprun::rendezvous
