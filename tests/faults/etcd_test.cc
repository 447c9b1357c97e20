// etcd as a whole says no while a job runs by it.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/etcd_job.h"
#include "tests/faults/bench.h"
#include "tests/support/contains.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

// Until it takes no more.
void FillUp(EtcdCluster& etcd) {
  const std::string much(100'000, 'x');
  int count = 0;
  while (count < 100 && etcd.Ctl({"put", "fill" + std::to_string(count), much}) == "OK\n") ++count;
  REQUIRE_MESSAGE(etcd.Ctl({"alarm", "list"}) == Contains("NOSPACE"), count);
}

void NoteDescriptors(Bench& bench, EtcdJob& job) {
  for (size_t i = 0; i < job.size(); ++i) bench.NoteDescriptors(job.node(i));
}

TEST_CASE("F20: etcd's space is used up: rounds go on, and the job ends as it should") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1, .more = {"--quota-backend-bytes=2000000"}});
  EtcdJob job(etcd, "full");
  job.StartNodes(2, "2", {"--max-restarts=1"});
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  Bench bench;
  NoteDescriptors(bench, job);
  FillUp(etcd);
  CHECK(job.Pids(2) == pids);
  REQUIRE(kill(pids[1], SIGKILL) == 0);
  job.AwaitWorkers(1, 2);
  // The one that leads says that the new round is not on record.
  const auto told = [&] {
    const std::string word =
        "warning: the job's record is not kept: etcd at 127.0.0.1:" + std::to_string(etcd.port(0)) +
        ": etcdserver: mvcc: database space exceeded; ";
    return job.Count(0, word) + job.Count(1, word);
  };
  CHECK_MESSAGE(Eventually([&] { return told() == 1; }), job.Describe());
  CHECK(bench.CheckDescriptors() == "");
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(job.Keys() == "");
  CHECK(told() == 1);
}

TEST_CASE("F20: a job that begins when etcd's space is used up says so") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1, .more = {"--quota-backend-bytes=2000000"}});
  FillUp(etcd);
  EtcdJob job(etcd, "late");
  job.StartNode("1", {"--rdzv-conf=join_timeout=10"});
  CHECK_MESSAGE(job.node(0).Wait() == 121, job.Describe());
  CHECK_MESSAGE(CountOf(job.node(0).err(), "etcdserver: mvcc: database space exceeded") > 0,
                job.Describe());
}

// What etcd says of itself to Prometheus.
std::string Metrics(const EtcdCluster& etcd) {
  Subprocess get({"/bin/bash", "-c",
                  "exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(etcd.port(0)) +
                      " && printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"});
  get.Wait();
  return get.out();
}

// Whether etcd has refused a call for want of a login that it knows, since it was started.
bool HasRefusedLogin(const EtcdCluster& etcd) {
  std::stringstream lines(Metrics(etcd));
  for (std::string line; std::getline(lines, line);) {
    const bool is_refusal = line.starts_with("grpc_server_handled_total") &&
                            CountOf(line, "grpc_code=\"Unauthenticated\"") > 0;
    if (is_refusal && !line.ends_with(" 0")) return true;
  }
  return false;
}

// How often it has written to its disk what it had applied.
int Commits(const EtcdCluster& etcd) {
  const std::string metrics = Metrics(etcd),
                    name = "\netcd_disk_backend_commit_duration_seconds_count ";
  const size_t at = metrics.find(name);
  return at == std::string::npos ? -1 : std::atoi(metrics.c_str() + at + name.size());
}

TEST_CASE("F20: a login that etcd knows no more is made anew, and the job goes on") {
  if (const std::string why = WhyNoEtcd(); !why.empty()) return SkipTest(why);
  EtcdCluster etcd({.members = 1, .ctl = {"--user=root:secret"}});
  etcd.Ctl({"user", "add", "root:secret"});
  etcd.Ctl({"user", "grant-role", "root", "root"});
  REQUIRE(etcd.Ctl({"auth", "enable"}) == "Authentication Enabled\n");
  EtcdJob job(etcd, "login");
  for (int i = 0; i < 2; ++i) {
    job.StartNode("2", {"--max-restarts=1", "--rdzv-conf=user=root"},
                  {.env = {{"DDPRUN_ETCD_PASSWORD", "secret"}}});
  }
  job.AwaitWorkers(0, 2);
  const std::vector<int> pids = job.Pids(2);
  Bench bench;
  NoteDescriptors(bench, job);
  // Its tokens are in its memory alone, once it applies the logins no more when it starts.
  const int commits = Commits(etcd);
  REQUIRE(commits >= 0);
  REQUIRE(Eventually([&] {
    return etcd.Ctl({"put", "more", "x"}) == "OK\n" && Commits(etcd) >= commits + 2;
  }));
  etcd.Restart(0);
  REQUIRE(etcd.AwaitWrites());
  REQUIRE_MESSAGE(Eventually([&] { return HasRefusedLogin(etcd); }), Metrics(etcd));
  CHECK(job.Pids(2) == pids);
  REQUIRE(kill(pids[1], SIGKILL) == 0);
  job.AwaitWorkers(1, 2);
  // Where etcd took longer to start than a lease lasts, the other node leads now.
  const auto leaders = [&] {
    return job.Count(0, "coordinator hosted here") + job.Count(1, "coordinator hosted here");
  };
  if (leaders() == 1) CHECK(bench.CheckDescriptors() == "");
  job.Finish();
  job.CheckAllEndWith(0);
  CHECK(leaders() <= 2);
  // Who leads has deleted them, so it has logged in again.
  CHECK(job.Keys() == "");
}

}  // namespace
}  // namespace ddprun::testing
