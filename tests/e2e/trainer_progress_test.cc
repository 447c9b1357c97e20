// Kubeflow Trainer hears how far a job is, from the node of rank 0: where a case waits for what a
// running program says, that takes up to TrainerProgress::kInterval.
#include <signal.h>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/trainer_server.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;
using Manner = TrainerServer::Manner;

constexpr char kWarning[] = "ddprun: warning: Kubeflow Trainer does not hear of the progress: ";

// A pod of a TrainJob: what its controller puts into it.
class Pod {
 public:
  explicit Pod(const Job& job) : job_(job), authority_(MakeAuthority()) {
    WriteFile(job.File("ca.crt"), authority_.certificate);
    SetToken("token-1");
  }

  Certificate ServerCertificate() const {
    return MakeServerCertificate(authority_, "IP:127.0.0.1");
  }
  void SetToken(const std::string& token) const { WriteFile(job_.File("token"), token); }
  Subprocess::Options With(const std::string& url) const {
    return {.env = {{"KUBEFLOW_TRAINER_SERVER_URL", url},
                    {"KUBEFLOW_TRAINER_SERVER_CA_CERT", job_.File("ca.crt")},
                    {"KUBEFLOW_TRAINER_SERVER_TOKEN", job_.File("token")}}};
  }

 private:
  const Job& job_;
  const Certificate authority_;
};

TEST_CASE("trainer progress: rank 0's is told in TLS with the token of the moment, then the end") {
  Job job;
  const Pod pod(job);
  TrainerServer server({.certificate = pod.ServerCertificate()});
  const auto ddprun = job.Run({"--nproc-per-node=2"},
                              {"progress:1/4@0", "progress:3/4@1", "until:" + job.File("end")},
                              pod.With(server.Url()));
  REQUIRE_MESSAGE(server.WaitForPercent(25), ddprun->Describe());
  pod.SetToken("token-2");
  server.SetToken("token-2");
  job.Touch("end");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  const std::vector<TrainerStatus> taken = server.taken();
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].token == "token-1");
  CHECK(taken[0].remaining_seconds == std::nullopt);
  CHECK(taken[1].token == "token-2");
  CHECK(taken[1].percent == 100);
  CHECK(taken[1].remaining_seconds == 0);
  CHECK(server.answers() == std::vector<int>{200, 200});
  CHECK(ddprun->err() != Contains(kWarning));
}

TEST_CASE(
    "trainer progress: a server with another certificate gets nothing, and one line says so") {
  Job job, elsewhere;
  const Pod pod(job), other(elsewhere);
  TrainerServer server({.certificate = other.ServerCertificate()});
  const auto ddprun = job.Run({}, {"progress:1/4"}, pod.With(server.Url()));
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(server.connections() > 0);
  CHECK(server.answers().empty());
  CHECK(CountOf(ddprun->err(), kWarning) == 1);
  CHECK(ddprun->err() == Contains(kWarning + ("POST " + server.Url()) + ": "));
  CHECK(ddprun->err() ==
        Contains("unable to get local issuer certificate; the job is not affected\n"));
}

TEST_CASE(
    "trainer progress: a job ends with its own code beside a server that is out of its mind") {
  struct Beside {
    Beside(Manner manner, bool is_stopped)
        : server({.manner = manner}),
          is_stopped(is_stopped),
          ddprun(job.Run({}, {"progress:1/4", "until:" + job.File("end"), "exit:3"},
                         pod.With(server.Url()))) {}
    Job job;
    const Pod pod{job};
    TrainerServer server;
    const bool is_stopped;
    const std::unique_ptr<Subprocess> ddprun;
  };
  // At once: each waits for its first request.
  std::vector<std::unique_ptr<Beside>> all;
  for (const Manner manner : {Manner::kSilent, Manner::kGarbage}) {
    for (const bool is_stopped : {false, true}) {
      all.push_back(std::make_unique<Beside>(manner, is_stopped));
    }
  }
  for (const auto& one : all) {
    REQUIRE_MESSAGE(Eventually([&] { return one->server.connections() > 0; }),
                    one->ddprun->Describe());
    one->is_stopped ? one->ddprun->Signal(SIGTERM) : one->job.Touch("end");
  }
  for (const auto& one : all) {
    CHECK_MESSAGE(one->ddprun->Wait() == (one->is_stopped ? 143 : 3), one->ddprun->Describe());
    CHECK(CountOf(one->ddprun->err(), kWarning) == 1);
  }
}

TEST_CASE("trainer progress: a failure leaves the last state, without a time") {
  Job job;
  const Pod pod(job);
  TrainerServer server({});
  const auto ddprun =
      job.Run({}, {"progress:1/4", "progress:2/4", "die:9"}, pod.With(server.Url()));
  CHECK_MESSAGE(ddprun->Wait() == 137, ddprun->Describe());
  REQUIRE_FALSE(server.taken().empty());
  CHECK(server.taken().back().percent == 50);
  CHECK(server.taken().back().remaining_seconds == std::nullopt);
}

TEST_CASE("trainer progress: workers that were asked to stop and did have not done all") {
  Job job;
  const Pod pod(job);
  TrainerServer server({});
  const auto ddprun =
      job.Run({"--preempt-signal=USR1"}, {"progress:1/4", "touch:" + job.File("up"), "asked"},
              pod.With(server.Url()));
  REQUIRE_MESSAGE(job.WaitForFile("up"), ddprun->Describe());
  ddprun->Signal(SIGUSR1);
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  REQUIRE_FALSE(server.taken().empty());
  CHECK(server.taken().back().percent == 25);
}

TEST_CASE("trainer progress: after a restart the new round's rank 0 is heard") {
  Job job;
  const Pod pod(job);
  TrainerServer server({});
  const auto ddprun =
      job.Run({"--max-restarts=1"},
              {"progress:2/4#0", "die:9#0", "progress:1/4#1", "until:" + job.File("end")},
              pod.With(server.Url()));
  REQUIRE_MESSAGE(server.WaitForPercent(25), ddprun->Describe());
  job.Touch("end");
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(server.taken().back().percent == 100);
}

TEST_CASE("trainer progress: of two nodes that of rank 0 tells") {
  Job job;
  const Pod pod(job);
  TrainerServer of_a({}), of_b({});
  const Strings steps = {"env:DDPRUN_PROGRESS_FILE@1", "touch:" + job.File("up{rank}"),
                         "progress:1/4", "until:" + job.File("end")};
  const auto a = job.Run(job.NodeOptions(1), steps, pod.With(of_a.Url()));
  const auto b = job.Run(job.NodeOptions(1), steps, pod.With(of_b.Url()));
  REQUIRE(job.WaitForFile("up0"));
  REQUIRE(job.WaitForFile("up1"));
  job.Touch("end");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
  REQUIRE_MESSAGE(of_a.taken().size() + of_b.taken().size() > 0, a->Describe(), b->Describe());
  const bool is_a = !of_a.taken().empty();
  CHECK((is_a ? of_a : of_b).taken().back().percent == 100);
  CHECK((is_a ? of_b : of_a).connections() == 0);
  CHECK((is_a ? b : a)->out() == "DDPRUN_PROGRESS_FILE=\n");
  CHECK((is_a ? a : b)->out() == "");
}

TEST_CASE(
    "trainer progress: a program that says nothing, and a job within a worker, tell nothing") {
  Job job;
  const Pod pod(job);
  TrainerServer server({});
  const auto quiet = job.Run({}, {"print:done"}, pod.With(server.Url()));
  CHECK_MESSAGE(quiet->Wait() == 0, quiet->Describe());
  Subprocess::Options inner = pod.With(server.Url());
  inner.env["DDPRUN_JOB_MARK"] = "outer";
  const auto nested = job.Run({}, {"env:DDPRUN_PROGRESS_FILE", "progress:1/4"}, inner);
  CHECK_MESSAGE(nested->Wait() == 0, nested->Describe());
  CHECK(nested->out() == "DDPRUN_PROGRESS_FILE=\n");
  CHECK(server.connections() == 0);
}

TEST_CASE("trainer progress: a URL that cannot be used is one line, and no page is made") {
  Job job;
  const Pod pod(job);
  const auto ddprun =
      job.Run({"--max-restarts=1"}, {"env:DDPRUN_PROGRESS_FILE", "progress:1/4", "die:9#0"},
              pod.With("trainer:8082/status"));
  CHECK_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(CountOf(ddprun->err(), kWarning) == 1);
  CHECK(ddprun->err() ==
        Contains("KUBEFLOW_TRAINER_SERVER_URL=trainer:8082/status is no URL like "));
  CHECK(ddprun->out() == "DDPRUN_PROGRESS_FILE=\nDDPRUN_PROGRESS_FILE=\n");
}

}  // namespace
}  // namespace ddprun::testing
