#include "launcher/progress/trainer_post.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trainer_server.h"

namespace ddprun::launcher {
namespace {

using testing::Certificate;
using testing::MakeAuthority;
using testing::MakeServerCertificate;
using testing::TempDir;
using testing::TrainerServer;
using testing::WriteFile;
using Manner = TrainerServer::Manner;

constexpr Duration kLong = std::chrono::seconds(60);
constexpr char kBody[] =
    R"({"trainerStatus":{"progressPercentage":40,"lastUpdatedTime":"2025-01-31T12:00:00.123Z"}})";

// A Trainer's pod: the files that are mounted into it.
struct Pod {
  TempDir dir;
  Certificate authority = MakeAuthority();
  std::string ca_file = WriteFile(dir.File("ca.crt"), authority.certificate);
  std::string token_file = WriteFile(dir.File("token"), "token-1\n");

  Certificate ServerCertificate(const std::string& names = "IP:127.0.0.1") const {
    return MakeServerCertificate(authority, names);
  }
  TrainerEndpoint Endpoint(const std::string& url) const {
    Environment environment;
    environment.variables = {std::string(kTrainerUrlVar) + "=" + url,
                             std::string(kTrainerCaVar) + "=" + ca_file,
                             std::string(kTrainerTokenVar) + "=" + token_file};
    return FindTrainer(environment)->value();
  }
  absl::Status Post(const std::string& url, Duration timeout = kLong) const {
    return PostToTrainer(Endpoint(url), kBody, timeout);
  }
};

TEST_CASE("trainer post: the server takes it, in TLS and plain, by address and by name") {
  const Pod pod;
  TrainerServer secure({.certificate = pod.ServerCertificate("IP:127.0.0.1,DNS:localhost")});
  TrainerServer plain({});
  for (TrainerServer* server : {&secure, &plain}) {
    CHECK(pod.Post(server->Url()) == absl::OkStatus());
    CHECK(pod.Post(server->Url("localhost")) == absl::OkStatus());
    REQUIRE(server->taken().size() == 2);
    CHECK(server->taken()[0].percent == 40);
    CHECK(server->taken()[0].remaining_seconds == std::nullopt);
  }
}

TEST_CASE("trainer post: the token is read anew each time") {
  const Pod pod;
  TrainerServer server({.certificate = pod.ServerCertificate()});
  CHECK(pod.Post(server.Url()).ok());
  server.SetToken("token-2");
  const absl::Status refused = pod.Post(server.Url());
  CHECK(absl::IsPermissionDenied(refused));
  CHECK(refused.message() ==
        "answer 403 {\"kind\":\"Status\",\"status\":\"Failure\"} to the token " + pod.token_file);
  WriteFile(pod.token_file, "token-2");
  CHECK(pod.Post(server.Url()).ok());
  CHECK(server.answers() == std::vector<int>{200, 403, 200});
}

TEST_CASE("trainer post: a server that the authority does not vouch for gets no request") {
  const Pod pod, other;
  const struct {
    Certificate certificate;
    std::string why;
  } rows[] = {
      {other.ServerCertificate(), "unable to get local issuer certificate"},
      {pod.ServerCertificate("IP:127.0.0.2"), "IP address mismatch"},
      {pod.ServerCertificate("DNS:localhost"), "IP address mismatch"},
  };
  for (const auto& [certificate, why] : rows) {
    TrainerServer server({.certificate = certificate});
    const absl::Status status = pod.Post(server.Url());
    CHECK(absl::IsUnauthenticated(status));
    CHECK(status.message() == Contains("(KUBEFLOW_TRAINER_SERVER_CA_CERT): " + why));
    CHECK(server.answers().empty());
    CHECK(server.connections() == 1);
  }
  TrainerServer named({.certificate = pod.ServerCertificate("DNS:elsewhere")});
  const absl::Status status = pod.Post(named.Url("localhost"));
  CHECK(absl::IsUnauthenticated(status));
  CHECK(status.message() == Contains("hostname mismatch"));
}

TEST_CASE("trainer post: a server that does not answer is left at the time given") {
  const Pod pod;
  TrainerServer silent({.manner = Manner::kSilent});
  const std::string url = silent.Url();
  for (const std::string& each : {url, "https" + url.substr(url.find(':'))}) {
    // lower bound: it never answers
    const absl::Status status = pod.Post(each, std::chrono::milliseconds(30));
    CHECK(absl::IsDeadlineExceeded(status));
    CHECK(status.message() == Contains("no answer in time"));
  }
}

TEST_CASE("trainer post: each way to fail has its code and says what was tried") {
  const Pod pod;
  TrainerServer garbage({.certificate = pod.ServerCertificate(), .manner = Manner::kGarbage});
  absl::Status status = pod.Post(garbage.Url());
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == "read the answer: bad version");

  TrainerServer plain({});
  status = PostToTrainer(pod.Endpoint(plain.Url()), "{}", kLong);
  CHECK(absl::IsInternal(status));
  CHECK(status.message() == Contains("answer 422 "));
  status = pod.Post("https" + plain.Url().substr(4));
  CHECK(absl::IsUnauthenticated(status));
  CHECK(status.message() == Contains("greet it in TLS: "));

  std::string url;
  {
    const TrainerServer gone({});
    url = gone.Url();
  }
  status = pod.Post(url);
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == Contains("connect to 127.0.0.1:"));
  CHECK(status.message() == Contains("Connection refused"));
  status = pod.Post("https://no-such-host.invalid/x");
  CHECK(absl::IsNotFound(status));
  CHECK(status.message() == Contains("find no-such-host.invalid: "));
}

TEST_CASE("trainer post: files that cannot be used are named with their variable") {
  Pod pod;
  TrainerServer server({.certificate = pod.ServerCertificate()});
  WriteFile(pod.ca_file, "no certificate");
  absl::Status status = pod.Post(server.Url());
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == Contains("(KUBEFLOW_TRAINER_SERVER_CA_CERT): "));
  for (const char* token : {"", " \n", "two words", "a\r\nX: y", "\x01"}) {
    WriteFile(pod.token_file, token);
    status = pod.Post(server.Url());
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(status.message() == "read the token " + pod.token_file +
                                  " (KUBEFLOW_TRAINER_SERVER_TOKEN): it holds no token");
  }
  pod.token_file = pod.dir.File("absent");
  status = pod.Post(server.Url());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == Contains("No such file or directory"));
  CHECK(server.answers().empty());
}

}  // namespace
}  // namespace ddprun::launcher
