// `ddprun doctor` and --nproc-per-node=gpu and auto on machines with GPUs, which the double plays.
#include <algorithm>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Env = std::map<std::string, std::string>;

std::string Double(const std::string& which = "") {
  return Runfile("tests/gpu_double/libgpu_double" + which + ".so");
}

// A machine with two GPUs and everything else; `more` wins. CUDA_VISIBLE_DEVICES=none is unset.
Env TwoGpus(Env more = {}) {
  Env env = {{"DDPRUN_CUDA_LIB", Double()},
             {"DDPRUN_NCCL_LIB", Double()},
             {"DDPRUN_DOUBLE_GPUS", "2"},
             {"CUDA_VISIBLE_DEVICES", "none"},
             {"OMP_NUM_THREADS", "1"}};
  for (auto& [name, value] : more) env[name] = value;
  return env;
}

struct Result {
  int code;
  std::string out;
  std::string err;
};

// Through env(1): Subprocess cannot set a variable to nothing.
Result Run(const std::vector<std::string>& arguments, const Env& env) {
  std::vector<std::string> words = {"/usr/bin/env"};
  for (const auto& [name, value] : env) {
    if (value == "none") {
      words.insert(words.begin() + 1, "--unset=" + name);
    } else {
      words.push_back(name + "=" + value);
    }
  }
  words.push_back(Runfile("ddprun"));
  words.insert(words.end(), arguments.begin(), arguments.end());
  Subprocess ddprun(std::move(words));
  const std::optional<int> code = ddprun.Wait();
  REQUIRE_MESSAGE(code.has_value(), ddprun.Describe());
  return {.code = *code, .out = ddprun.out(), .err = ddprun.err()};
}

// `ddprun doctor --require cuda` ends with 120, and `reason` stands in its one line.
void ExpectLack(const Env& env, const std::string& reason, const std::string& advice) {
  const Result result = Run({"doctor", "--require", "cuda"}, env);
  CHECK(result.code == 120);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(result.err == Contains("ddprun: error: doctor: CUDA training cannot run here: " + reason));
  CHECK(result.err == Contains(advice));
  CHECK(result.out == Contains("verdict     CUDA training cannot run here"));
}

TEST_CASE("doctor: a machine with two GPUs and NCCL can train") {
  const Result result = Run({"doctor", "--require=cuda"}, TwoGpus());
  CHECK(result.code == 0);
  CHECK(result.err == "");
  CHECK(result.out == Contains("driver      " + Double() + ", CUDA 13.0"));
  CHECK(result.out ==
        Contains("\ngpu 0       ddprun test double, 80 GiB, compute capability 9.0, 0000:10:00.0, "
                 "GPU-a0"));
  CHECK(result.out == Contains("\ngpu 1       ddprun test double"));
  CHECK(result.out ==
        Contains("\nnccl        " + Double() + ", version 2.28.7, built for CUDA 13.0\ncublas"));
  CHECK(result.out == Contains("\nverdict     CUDA training can run here\n"));
  CHECK(Run({"doctor", "--json"}, TwoGpus()).out ==
        Contains("\"cuda_training\": {\"possible\": true, \"reason\": null}"));
}

TEST_CASE("doctor: GPUs without NCCL, with one too old, and with one that lacks a function") {
  ExpectLack(TwoGpus({{"DDPRUN_NCCL_LIB", "/no/such/libnccl.so.2"}}),
             "NCCL: /no/such/libnccl.so.2: ", "DDPRUN_NCCL_LIB");
  ExpectLack(TwoGpus({{"DDPRUN_NCCL_LIB", Double("_old")}}), "NCCL: ", "2.18.3 or newer");
  ExpectLack(TwoGpus({{"DDPRUN_NCCL_LIB", Double("_broken")}}), "NCCL: ", "ncclAllReduce");
}

TEST_CASE("doctor: an NCCL without an optional function will do, and what it lacks is told") {
  const Result result =
      Run({"doctor", "--require=cuda"}, TwoGpus({{"DDPRUN_NCCL_LIB", Double("_noregister")}}));
  CHECK(result.code == 0);
  CHECK(result.out == Contains("version 2.18.3\n            -> it lacks ncclMemAlloc and "
                               "ncclCommRegister (since 2.19): "));
}

TEST_CASE("doctor: a driver that is too old, in its functions or in its version") {
  ExpectLack(TwoGpus({{"DDPRUN_CUDA_LIB", Double("_broken")}}), "CUDA driver ",
             "it has no cuStreamWaitEvent");
  // This NCCL does not say what it is built for.
  const Result result =
      Run({"doctor", "--require=cuda"},
          TwoGpus({{"DDPRUN_DOUBLE_DRIVER", "11040"}, {"DDPRUN_NCCL_LIB", Double("_noregister")}}));
  CHECK(result.code == 0);
  CHECK(result.out == Contains(", CUDA 11.4"));
  CHECK(result.out == Contains("-> an NCCL built for CUDA 12 or 13 does not run on it: update"));
}

TEST_CASE("doctor: a driver too old for the CUDA that NCCL is built for") {
  const Env env = TwoGpus({{"DDPRUN_DOUBLE_DRIVER", "12080"}});
  const std::string reason = "NCCL 2.28.7 (" + Double() +
                             ") is built for CUDA 13.0, and the driver serves CUDA 12.8 at most";
  ExpectLack(env, reason, "update the driver (580 or newer), or install an NCCL built for CUDA 12");
  const Result result = Run({"doctor"}, env);
  CHECK(result.code == 0);
  CHECK(result.err == "");
  CHECK(result.out == Contains(", built for CUDA 13.0\n            -> " + reason));
  CHECK(Run({"doctor", "--json"}, env).out ==
        Contains("\"possible\": false, \"reason\": \"" + reason));
  CHECK(Run({"doctor", "--require=cuda"}, TwoGpus({{"DDPRUN_DOUBLE_DRIVER", "14010"}})).code == 0);
}

TEST_CASE("doctor: a driver that does not initialise is quoted with what helps") {
  ExpectLack(TwoGpus({{"DDPRUN_DOUBLE_GPUS", "0"}}), "no GPU is visible", "CUDA_ERROR_NO_DEVICE");
  ExpectLack(TwoGpus({{"DDPRUN_DOUBLE_FAULT", "cuinit=803"}}), "cuInit: ", "reboot");
  ExpectLack(TwoGpus({{"DDPRUN_DOUBLE_FAULT", "cuinit=999"}}), "cuInit: ", "nvidia");
}

TEST_CASE("doctor: CUDA_VISIBLE_DEVICES that leaves no GPU is named") {
  for (const std::string value : {"", "-1", "GPU-ffffffff", "99", "0,0"}) {
    ExpectLack(TwoGpus({{"CUDA_VISIBLE_DEVICES", value}}),
               "no GPU is visible: CUDA_VISIBLE_DEVICES is '" + value + "'", "unset it");
  }
}

TEST_CASE("doctor: slices of a GPU are named as CUDA_VISIBLE_DEVICES takes them") {
  const Env mig = TwoGpus({{"DDPRUN_DOUBLE_MIG", "1"}, {"CUDA_VISIBLE_DEVICES", "MIG-a1"}});
  const Result result = Run({"doctor", "--require=cuda"}, mig);
  CHECK(result.code == 0);
  CHECK(result.out == Contains("\ngpu 0       ddprun test double MIG 1g.10gb, 80 GiB"));
  CHECK(result.out == Contains(", 0000:11:00.0, MIG-a112"));
  CHECK(result.out != Contains("GPU-"));
  CHECK(result.out ==
        Contains("-> it takes slices (MIG) of one GPU for the same GPU and refuses them"));
  ExpectLack(TwoGpus({{"DDPRUN_DOUBLE_MIG", "1"}, {"CUDA_VISIBLE_DEVICES", "GPU-a1"}}),
             "no GPU is visible: CUDA_VISIBLE_DEVICES is 'GPU-a1'", "unset it");
}

TEST_CASE("doctor: GPUs are listed as CUDA_VISIBLE_DEVICES orders them") {
  Result result = Run({"doctor"}, TwoGpus({{"CUDA_VISIBLE_DEVICES", "GPU-a1"}}));
  CHECK(result.out == Contains("\ngpu 0       ddprun test double, 80 GiB, compute capability 9.0, "
                               "0000:11:00.0, GPU-a1"));
  CHECK(result.out != Contains("gpu 1"));
  CHECK(result.out != Contains("CUDA stops reading"));
  result = Run({"doctor"}, TwoGpus({{"CUDA_VISIBLE_DEVICES", "1,99,0"}}));
  CHECK(result.out == Contains("-> CUDA_VISIBLE_DEVICES is '1,99,0': CUDA stops reading it"));
}

// What rank 0 of a job with that many workers says of their number.
std::string WorldSize(const std::string& count, const Env& env) {
  const Result result = Run(
      {"--nproc-per-node=" + count, "/bin/sh", "-c", "test $RANK != 0 || echo $WORLD_SIZE"}, env);
  CHECK(result.code == 0);
  CHECK(result.err == "");
  return result.out;
}

TEST_CASE("nproc_per_node: gpu and auto start one worker for each visible GPU") {
  for (const std::string count : {"gpu", "auto"}) {
    CHECK(WorldSize(count, TwoGpus()) == "2\n");
    CHECK(WorldSize(count, TwoGpus({{"DDPRUN_DOUBLE_GPUS", "5"}})) == "5\n");
    CHECK(WorldSize(count, TwoGpus({{"CUDA_VISIBLE_DEVICES", "1"}})) == "1\n");
    CHECK(WorldSize(count, TwoGpus({{"CUDA_VISIBLE_DEVICES", "GPU-a1,GPU-a0"}})) == "2\n");
    // NCCL is no question of the count.
    CHECK(WorldSize(count, TwoGpus({{"DDPRUN_NCCL_LIB", "/no/such"}})) == "2\n");
  }
}

TEST_CASE("nproc_per_node: gpu with all GPUs hidden ends with 120, auto warns and takes the CPUs") {
  for (const std::string value : {"", "-1", "GPU-ffffffff"}) {
    const Env env = TwoGpus({{"CUDA_VISIBLE_DEVICES", value}});
    Result result = Run({"--nproc-per-node=gpu", "true"}, env);
    CHECK(result.code == 120);
    CHECK(result.err == Contains("ddprun: error: --nproc-per-node 'gpu': no GPU is visible: "
                                 "CUDA_VISIBLE_DEVICES is '" +
                                 value + "'"));
    result = Run({"--nproc-per-node=auto", "true"}, env);
    CHECK(result.code == 0);
    CHECK(result.err ==
          Contains("ddprun: warning: --nproc-per-node 'auto': one worker for each of "));
  }
}

// What each worker is given, in the order of the ranks.
std::string DevicesOf(std::vector<std::string> options, const Env& env) {
  for (const char* word : {"/bin/sh", "-c", "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES"}) {
    options.emplace_back(word);
  }
  const Result result = Run(options, env);
  CHECK(result.code == 0);
  std::set<std::string> lines;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) lines.insert(line);
  std::string all;
  for (const std::string& line : lines) all += line + "; ";
  return all;
}

TEST_CASE("nproc_per_node: gpu:1,3 starts one worker on each of these") {
  const Env five = TwoGpus({{"DDPRUN_DOUBLE_GPUS", "5"}});
  CHECK(DevicesOf({"--nproc-per-node=gpu:3,1"}, five) == "0 0 3,1; 1 1 3,1; ");
  CHECK(DevicesOf({"--nproc-per-node=gpu:3,1", "--virtual-local-rank"}, five) == "0 0 3; 1 0 1; ");
  CHECK(DevicesOf({"--nproc-per-node=gpu:1"},
                  TwoGpus({{"CUDA_VISIBLE_DEVICES", "GPU-a1,GPU-a0"}})) == "0 0 GPU-a0; ");
  const Result result = Run({"--nproc-per-node=gpu:0,2", "true"}, TwoGpus());
  CHECK(result.code == 120);
  CHECK(result.err ==
        Contains(
            "ddprun: error: --nproc-per-node 'gpu:0,2': there is no GPU 2: 2 are visible, and they "
            "count from 0\n"));
}

TEST_CASE("nproc_per_node: a local rank beyond the GPUs is warned of") {
  const Result result = Run({"--nproc-per-node=gpu", "--tee=2:3", "true"}, TwoGpus());
  CHECK(result.code == 0);
  CHECK(result.err ==
        Contains("ddprun: warning: --tee: no worker here has local rank 2; they are 0 to 1\n"));
}

TEST_CASE("nproc_per_node: the launcher that counted the GPUs has not opened the driver itself") {
  Job job;
  auto ddprun = job.Run({"--nproc-per-node=gpu"}, {"touch:" + job.File("up"), "wait"},
                        {.env = {{"DDPRUN_CUDA_LIB", Double()}, {"DDPRUN_DOUBLE_GPUS", "2"}}});
  REQUIRE_MESSAGE(job.WaitForFile("up"), ddprun->Describe());
  const std::string maps = ReadFile("/proc/" + std::to_string(ddprun->pid()) + "/maps");
  CHECK(maps == Contains("ddprun"));
  CHECK(maps != Contains("gpu_double"));
  ddprun->Signal(15);
  CHECK(ddprun->Wait() == 143);
}

}  // namespace
}  // namespace ddprun::testing
