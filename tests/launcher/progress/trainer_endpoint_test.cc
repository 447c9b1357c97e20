#include "launcher/progress/trainer_endpoint.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

Environment With(const std::string& url, std::vector<std::string> more = {}) {
  Environment environment;
  environment.variables = std::move(more);
  environment.variables.push_back("KUBEFLOW_TRAINER_SERVER_URL=" + url);
  return environment;
}

const std::vector<std::string> kFiles = {"KUBEFLOW_TRAINER_SERVER_CA_CERT=/run/ca.crt",
                                         "KUBEFLOW_TRAINER_SERVER_TOKEN=/run/token"};

TEST_CASE("trainer endpoint: the controller's variables say where and with what") {
  const std::string url =
      "https://kubeflow-trainer.kubeflow.svc:10443/apis/trainer.kubeflow.org/v1alpha1/"
      "namespaces/team/trainjobs/digits/status";
  const auto found = FindTrainer(With(url, kFiles));
  REQUIRE(found.has_value());
  REQUIRE(found->ok());
  const TrainerEndpoint& endpoint = **found;
  CHECK(endpoint.url == url);
  CHECK(endpoint.is_tls);
  CHECK(endpoint.host == "kubeflow-trainer.kubeflow.svc");
  CHECK(endpoint.port == 10443);
  CHECK(endpoint.authority == "kubeflow-trainer.kubeflow.svc:10443");
  CHECK(endpoint.target == url.substr(url.find("/apis")));
  CHECK(endpoint.ca_file == "/run/ca.crt");
  CHECK(endpoint.token_file == "/run/token");
}

TEST_CASE("trainer endpoint: without the URL, and in a job within a worker, nobody asks") {
  for (const Environment& environment :
       {Environment{}, With("", kFiles),
        With("https://a/", {"DDPRUN_JOB_MARK=outer", kFiles[0]})}) {
    const auto found = FindTrainer(environment);
    CHECK_FALSE(found.has_value());
  }
}

TEST_CASE("trainer endpoint: a URL is taken apart") {
  const struct {
    std::string url;
    bool is_tls;
    std::string host;
    int port;
    std::string target;
  } rows[] = {
      {"https://a", true, "a", 443, "/"},
      {"http://a/b?c=d", false, "a", 80, "/b?c=d"},
      {"http://a?c=d", false, "a", 80, "/?c=d"},
      {"http://10.0.0.1:8082/x", false, "10.0.0.1", 8082, "/x"},
      {"https://[fd00::1]/x", true, "fd00::1", 443, "/x"},
      {"https://[fd00::1]:8082/x", true, "fd00::1", 8082, "/x"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.url);
    const auto found = FindTrainer(With(row.url, kFiles));
    REQUIRE(found.has_value());
    REQUIRE(found->ok());
    CHECK((*found)->is_tls == row.is_tls);
    CHECK((*found)->host == row.host);
    CHECK((*found)->port == row.port);
    CHECK((*found)->target == row.target);
  }
}

TEST_CASE("trainer endpoint: what is no URL is named with its variable") {
  for (const char* url :
       {"a:8082/x", "ftp://a/", "https://", "https:///x", "https://a:b/", "https://a:0/",
        "https://a:65536/", "https://a:-1/", "https://user:pass@a/", "https://[fd00::1",
        "https://[fd00::1]8082/", "https://a/b c", "https://a/\r\nX: y", "https://a/#b"}) {
    CAPTURE(url);
    const auto found = FindTrainer(With(url, kFiles));
    REQUIRE(found.has_value());
    REQUIRE(absl::IsInvalidArgument(found->status()));
    const std::string message(found->status().message());
    CHECK(message.find("KUBEFLOW_TRAINER_SERVER_URL=") == 0);
    CHECK(message != Contains("\n"));
  }
}

TEST_CASE("trainer endpoint: each file that is missing is named; plain HTTP needs no certificate") {
  CHECK(std::string(FindTrainer(With("https://a/", {kFiles[0]}))->status().message()) ==
        "KUBEFLOW_TRAINER_SERVER_TOKEN, the file of the token, is not set, though "
        "KUBEFLOW_TRAINER_SERVER_URL is");
  CHECK(std::string(FindTrainer(With("https://a/", {kFiles[1]}))->status().message()) ==
        "KUBEFLOW_TRAINER_SERVER_CA_CERT, the file of the certificate, is not set, though "
        "KUBEFLOW_TRAINER_SERVER_URL is");
  CHECK(FindTrainer(With("http://a/", {kFiles[1]}))->ok());
}

}  // namespace
}  // namespace ddprun::launcher
