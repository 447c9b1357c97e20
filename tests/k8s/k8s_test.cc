// The examples for Kubernetes: the cluster would take them, and what its controllers make of them
// runs, each pod in a network namespace and with a host name of its own.
#include <sys/stat.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/netns.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

constexpr char kPython[] = "/usr/bin/python3";  // whose packages the distribution installs

struct Pod {
  std::string host;
  std::string name;  // by DNS
  std::map<std::string, std::string> variables{};
  std::vector<std::string> command{};
};

std::string Example(const std::string& name) { return Runfile("examples/k8s/" + name); }

// "": the models are there.
std::string WhyNoModels() {
  Subprocess python({kPython, "-c", "import kubernetes, yaml"});
  if (python.Wait() == 0) return "";
  return "no python3-kubernetes here; tools/setup --with-kubernetes installs it";
}

std::unique_ptr<Subprocess> Check(const std::string& file) {
  auto check = std::make_unique<Subprocess>(
      std::vector<std::string>{kPython, Runfile("tests/k8s/manifest.py"), "check", file});
  check->Wait();
  return check;
}

std::vector<Pod> PodsOf(const std::string& file) {
  Subprocess controller({kPython, Runfile("tests/k8s/manifest.py"), "pods", file});
  REQUIRE_MESSAGE(controller.Wait() == 0, controller.Describe());
  std::vector<Pod> pods;
  std::stringstream lines(controller.out());
  for (std::string kind, rest; lines >> kind && std::getline(lines >> std::ws, rest);) {
    if (kind == "host") pods.push_back({.host = rest, .name = ""});
    Pod& pod = pods.at(pods.size() - 1);
    if (kind == "name") pod.name = rest;
    if (kind == "word") pod.command.push_back(rest);
    const size_t equals = rest.find('=');
    if (kind == "env") pod.variables[rest.substr(0, equals)] = rest.substr(equals + 1);
  }
  return pods;
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Pods on a network of their own, with an image in which `train` is the toy worker.
class Cluster {
 public:
  explicit Cluster(std::vector<Pod> pods) : pods_(std::move(pods)) {
    hosts_ = Hosts::Make(static_cast<int>(pods_.size()), &why_);
    std::filesystem::create_directory(job_.File("bin"));
    std::filesystem::create_symlink(Runfile("ddprun"), job_.File("bin/ddprun"));
  }
  std::string why() const { return hosts_ == nullptr ? "no network namespaces here: " + why_ : ""; }

  void PutTrain(const std::string& steps) const {
    const std::string path = job_.File("bin/train");
    std::ofstream(path) << "#!/bin/sh\n"
                        << "test $TORCHELASTIC_RESTART_COUNT = 0 || echo \"$@\"\n"
                        << "exec " << Runfile("tests/e2e/toy_worker") << " " << steps << "\n";
    REQUIRE(chmod(path.c_str(), 0755) == 0);
  }

  std::unique_ptr<Subprocess> Start(size_t index) {
    const Pod& pod = pods_[index];
    const int host = static_cast<int>(index) + 1;
    Subprocess::Options how{.env = pod.variables, .netns = hosts_->Name(host)};
    how.env["PATH"] = job_.File("bin") + ":/usr/sbin:/usr/bin:/sbin:/bin";
    how.env["KUBERNETES_SERVICE_HOST"] = "10.96.0.1";
    // Its own line is the kubelet's, the others stand for DNS.
    how.hosts_file = job_.File("hosts" + std::to_string(index));
    std::ofstream hosts_file(how.hosts_file);
    hosts_file << "127.0.0.1 localhost\n";
    for (size_t i = 0; i < pods_.size(); ++i) {
      hosts_file << hosts_->Address(static_cast<int>(i) + 1) << " " << pods_[i].name
                 << (i == index ? " " + pod.host : "") << "\n";
    }
    hosts_file.close();
    std::vector<std::string> argv = {
        "/usr/bin/unshare", "--uts", "/bin/sh", "-c", "hostname \"$0\" && exec \"$@\"", pod.host};
    argv.insert(argv.end(), pod.command.begin(), pod.command.end());
    return job_.RunProgram(argv, how);
  }

 private:
  const std::vector<Pod> pods_;
  std::string why_;
  std::unique_ptr<Hosts> hosts_;
  Job job_;
};

// Runs the example's pods through a restart to a success and through a failure.
void CheckRuns(const std::string& example, const std::string& master) {
  const std::vector<Pod> pods = PodsOf(Example(example));
  REQUIRE(pods.size() == 2);
  Cluster cluster(pods);
  if (!cluster.why().empty()) return SkipTest(cluster.why());

  cluster.PutTrain(
      "exit:7@1#0 wait#0 'print:rank {rank}' env:WORLD_SIZE env:GROUP_RANK env:MASTER_ADDR "
      "connect");
  const auto later = cluster.Start(1);  // the one of rank 0 need not be the first
  const auto first = cluster.Start(0);
  REQUIRE_MESSAGE(first->Wait() == 0, first->Describe(), later->Describe());
  REQUIRE_MESSAGE(later->Wait() == 0, first->Describe(), later->Describe());
  for (int node = 0; node < 2; ++node) {
    const Subprocess& pod = node == 0 ? *first : *later;
    std::string expected;
    for (int local_rank = 0; local_rank < 2; ++local_rank) {
      expected += "--data /data/digits\nrank " + std::to_string(node * 2 + local_rank) +
                  "\nWORLD_SIZE=4\nGROUP_RANK=" + std::to_string(node) + "\nMASTER_ADDR=" + master +
                  "\nconnected\n";
    }
    CHECK_MESSAGE(SortedLines(pod.out()) == SortedLines(expected), pod.Describe());
    CHECK(pod.err() != Contains("warning"));
    // A pod's name leads to its address: Gloo needs no help.
    CHECK(pod.err() != Contains("GLOO_SOCKET_IFNAME"));
  }

  cluster.PutTrain("exit:3@3 wait");
  const auto a = cluster.Start(0);
  const auto b = cluster.Start(1);
  REQUIRE_MESSAGE(a->Wait() == 3, a->Describe());
  REQUIRE_MESSAGE(b->Wait() == 3, b->Describe());
  const std::string said = "exit code 3: that of rank 3 on " + pods[1].host;
  CHECK(a->err() == Contains(said));
  CHECK(b->err() == Contains(said));
}

TEST_CASE("k8s: a cluster would take the examples") {
  if (std::string why = WhyNoModels(); !why.empty()) return SkipTest(why);
  for (const char* example : {"trainer.yaml", "indexed_job.yaml"}) {
    const auto check = Check(Example(example));
    CHECK_MESSAGE(check->Wait() == 0, check->Describe());
  }
}

TEST_CASE("k8s: the check finds a misspelt field and a value of the wrong type") {
  if (std::string why = WhyNoModels(); !why.empty()) return SkipTest(why);
  const TempDir dir;
  for (const auto& [example, good, bad, said] :
       {std::array{"indexed_job.yaml", "backoffLimit", "backofLimit", "Job.spec.backofLimit: no"},
        std::array{"indexed_job.yaml", "completions: 2", "completions: '2'",
                   "Job.spec.completions"},
        std::array{"trainer.yaml", "image:", "imag:", ".containers[0].imag: no such field"},
        std::array{"trainer.yaml", "numNodes: 2", "numNodes: two",
                   "TrainJob.spec.trainer.numNodes"},
        std::array{"trainer.yaml", "mlPolicy", "policy", "ClusterTrainingRuntime.spec.policy: no"},
        std::array{"trainer.yaml", "PET_MAX_RESTARTS", "PET_NNODES", "the controller's to set"}}) {
    std::string text = ReadFile(Example(example));
    const size_t at = text.find(good);
    REQUIRE(at != std::string::npos);
    const std::string file = dir.File("bad.yaml");
    std::ofstream(file) << text.replace(at, std::string(good).size(), bad);
    const auto check = Check(file);
    CHECK_MESSAGE(check->Wait() == 1, check->Describe());
    CHECK(check->out() == Contains(said));
  }
}

TEST_CASE("k8s: the pods that Kubeflow Trainer makes of its example are one job") {
  if (std::string why = WhyNoModels(); !why.empty()) return SkipTest(why);
  CheckRuns("trainer.yaml", "digits-node-0-0.digits");
}

TEST_CASE("k8s: the pods of the indexed Job are one job") {
  if (std::string why = WhyNoModels(); !why.empty()) return SkipTest(why);
  CheckRuns("indexed_job.yaml", "10.77.0.1");
}

}  // namespace
}  // namespace ddprun::testing
