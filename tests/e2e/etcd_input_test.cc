// --rdzv-backend=etcd: what etcd asks for and refuses, and what is not etcd.
#include <signal.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/etcd_job.h"
#include "tests/rendezvous/server/sockets.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

// Agents that end with 121 and say a text each, side by side: some of them only wait.
class Refusals {
 public:
  explicit Refusals(EtcdJob& job) : job_(job) {}
  void Expect(const std::vector<std::string>& more, const std::string& text,
              const std::string& password = "") {
    job_.StartNode("2", more, {.env = {{"DDPRUN_ETCD_PASSWORD", password}}});
    expected_.push_back({job_.size() - 1, text});
  }
  ~Refusals() {
    for (const auto& [index, text] : expected_) {
      Subprocess& node = job_.node(index);
      CHECK_MESSAGE(node.Wait() == 121, node.Describe());
      CHECK(node.err() == Contains(text));
    }
  }

 private:
  EtcdJob& job_;
  std::vector<std::pair<size_t, std::string>> expected_;
};

void ExpectRefused(EtcdJob& job, const std::vector<std::string>& more, const std::string& text) {
  Refusals(job).Expect(more, text);
}

// Long enough for what the first try says, on a machine that stands still for a moment.
constexpr char kLimit[] = "--rdzv-conf=join_timeout=10";

TEST_CASE("etcd: what is not there, or is no etcd, is said with 121") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  EtcdJob job(etcd, "refused");
  const rendezvous::ReservedPort nobody;
  const std::string closed = "127.0.0.1:" + std::to_string(nobody.port());
  const rendezvous::ForeignServer web("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  Refusals refusals(job);
  refusals.Expect({"--rdzv-endpoint=" + closed, kLimit},
                  "etcd at " + closed +
                      " did not say whose coordinator leads within 10 s; see that it runs and "
                      "answers this node; last try: etcd at " +
                      closed + ": Connection refused");
  refusals.Expect({"--rdzv-endpoint=127.0.0.1:" + std::to_string(web.port()), kLimit},
                  "expected etcd 3's client port");
  refusals.Expect({"--rdzv-endpoint=no-such-host.invalid", kLimit},
                  "cannot resolve \"no-such-host.invalid\"");
  refusals.Expect(
      {"--rdzv-conf=protocol=https,cacert=/no/such/file"},
      "--rdzv-conf cacert, for TLS with etcd: /no/such/file: No such file or directory");
  // At once, within a join_timeout of ten minutes.
  refusals.Expect({"--rdzv-conf=protocol=https"},
                  "etcd at " + etcd.endpoints() + ": it speaks without TLS alone");
  refusals.Expect({std::string(kLimit) + ",protocol=https",
                   "--rdzv-endpoint=127.0.0.1:" + std::to_string(web.port())},
                  "it does not answer in TLS: does it have any?");
}

TEST_CASE("etcd: keys that hold what ddprun has not written are named, and left alone") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1});
  EtcdJob job(etcd, "foreign");
  etcd.Ctl({"put", "/ddprun/foreign/leader", "somebody's"});
  ExpectRefused(job, {},
                "the key \"/ddprun/foreign/leader\" in etcd at " + etcd.endpoints() +
                    " holds what ddprun has not written, or a later one has: remove it, or choose "
                    "another --rdzv-id");
  CHECK(job.Keys() == "/ddprun/foreign/leader\nsomebody's\n");
  etcd.Ctl({"del", "/ddprun/foreign/leader"});
  etcd.Ctl({"put", "/ddprun/foreign/job", "somebody's"});
  ExpectRefused(job, {}, "cannot host the rendezvous: the key \"/ddprun/foreign/job\"");
  CHECK(job.Keys() == "/ddprun/foreign/job\nsomebody's\n");
}

// TLS, and users of etcd: one for jobs, one that may only read.
struct Secured {
  Secured()
      : authority(MakeAuthority()),
        server(MakeServerCertificate(authority, "IP:127.0.0.1")),
        ca(WriteFile(dir.File("ca.pem"), authority.certificate)),
        cert(WriteFile(dir.File("cert.pem"), server.certificate)),
        key(WriteFile(dir.File("key.pem"), server.key)),
        etcd({.members = 1,
              .more = {"--cert-file=" + cert, "--key-file=" + key},
              .scheme = "https",
              .ctl = {"--cacert=" + ca, "--user=root:secret"}}) {
    etcd.Ctl({"user", "add", "root:secret"});
    etcd.Ctl({"user", "grant-role", "root", "root"});
    for (const auto& [name, right] :
         {std::pair<std::string, std::string>{"trainer", "readwrite"}, {"reader", "read"}}) {
      etcd.Ctl({"role", "add", name});
      etcd.Ctl({"role", "grant-permission", name, right, "--prefix=true", "/ddprun/"});
      etcd.Ctl({"user", "add", name + ":" + name + "-word"});
      etcd.Ctl({"user", "grant-role", name, name});
    }
    REQUIRE(etcd.Ctl({"auth", "enable"}) == "Authentication Enabled\n");
    REQUIRE(etcd.AwaitWrites());
  }

  std::vector<std::string> As(const std::string& user) const {
    return {std::string(kLimit) + ",protocol=https,cacert=" + ca +
            (user.empty() ? "" : ",user=" + user)};
  }

  TempDir dir;
  Certificate authority, server;
  std::string ca, cert, key;
  EtcdCluster etcd;
};

TEST_CASE("etcd: a job forms over TLS, as the user whose password is in the environment") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  Secured with;
  EtcdJob job(with.etcd, "secured");
  for (int i = 0; i < 2; ++i) {
    job.StartNode("2", with.As("trainer"), {.env = {{"DDPRUN_ETCD_PASSWORD", "trainer-word"}}});
  }
  job.AwaitWorkers(0, 2);
  for (const int pid : job.Pids(2)) {
    const std::string environment = ReadFile("/proc/" + std::to_string(pid) + "/environ");
    CHECK(environment == Contains("RANK="));
    CHECK(environment != Contains("trainer-word"));
  }
  for (size_t i = 0; i < job.size(); ++i) {
    const std::string folder = "/proc/" + std::to_string(job.node(i).pid()) + "/";
    CHECK(ReadFile(folder + "environ") == Contains("DDPRUN_ETCD_PASSWORD="));
    CHECK(ReadFile(folder + "environ") != Contains("trainer-word"));
  }
  CHECK(job.Keys() != "");
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
}

TEST_CASE("etcd: where it asks for a certificate of ours a job shows one, and is refused without") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate both = MakeServerCertificate(authority, "IP:127.0.0.1");
  const std::string ca = WriteFile(dir.File("ca.pem"), authority.certificate);
  const std::string cert = WriteFile(dir.File("cert.pem"), both.certificate);
  const std::string key = WriteFile(dir.File("key.pem"), both.key);
  EtcdCluster etcd({.members = 1,
                    .more = {"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth",
                             "--trusted-ca-file=" + ca},
                    .scheme = "https",
                    .ctl = {"--cacert=" + ca, "--cert=" + cert, "--key=" + key}});
  EtcdJob job(etcd, "shown");
  const std::string tls = std::string(kLimit) + ",protocol=https,cacert=" + ca;
  job.StartNode("1", {tls + ",cert=" + cert + ",key=" + key});
  job.AwaitWorkers(0, 1);
  job.Finish();
  job.CheckAllEndWith(0);
  const std::string warning =
      "warning: --rdzv-conf key=" + key + ": its mode is 644, so others may ";
  CHECK(job.Count(0, warning) == 1);
  REQUIRE(chmod(key.c_str(), 0600) == 0);
  EtcdJob kept(etcd, "kept");
  kept.StartNode("1", {tls + ",cert=" + cert + ",key=" + key});
  kept.AwaitWorkers(0, 1);
  kept.Finish();
  kept.CheckAllEndWith(0);
  CHECK(kept.Count(0, "its mode is") == 0);
  EtcdJob bare(etcd, "bare");
  ExpectRefused(bare, {tls}, "it ended TLS when it saw this node's certificate, or none");
}

TEST_CASE("etcd: users and certificates that are not right are named") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  Secured with;
  EtcdJob job(with.etcd, "refused");
  Refusals refusals(job);
  refusals.Expect(with.As("trainer"), "refuses the user \"trainer\" or its password", "wrong");
  refusals.Expect(with.As(""), "asks who we are: expected --rdzv-conf user=NAME");
  refusals.Expect(with.As("reader"),
                  "allows the user \"reader\" no reading and writing of keys under \"/ddprun/\"",
                  "reader-word");
  // Another authority's server, and one that is spoken to without TLS.
  const std::string other = WriteFile(with.dir.File("other.pem"), MakeAuthority().certificate);
  refusals.Expect({std::string(kLimit) + ",protocol=https,cacert=" + other},
                  "this node; last try: etcd at " + with.etcd.endpoints() +
                      ": its certificate is not believed");
  refusals.Expect({kLimit}, "as one does that expects TLS");
  // A certificate of ours with the key of another.
  const std::string key = WriteFile(with.dir.File("other.key"), MakeAuthority().key);
  refusals.Expect(
      {with.As("").front() + ",cert=" + with.cert + ",key=" + key},
      "--rdzv-conf cert and key, for TLS with etcd: " + key + ": it is not the key of the");
}

}  // namespace
}  // namespace ddprun::testing
