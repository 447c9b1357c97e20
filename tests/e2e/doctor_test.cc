// `ddprun doctor` and --nproc-per-node=gpu and auto, on a machine without a GPU and with drivers
// that are in trouble. A driver is a library named by DDPRUN_CUDA_LIB, so none of this needs one.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

constexpr char kNoLibrary[] = "/no/such/libcuda.so.1";

using Env = std::map<std::string, std::string>;

// A machine without driver and NCCL, whatever this one has.
Env Bare(Env more = {}) {
  Env env = {{"DDPRUN_CUDA_LIB", kNoLibrary},
             {"DDPRUN_NCCL_LIB", "/no/such/libnccl.so.2"},
             {"DDPRUN_CUBLAS_LIB", "/no/such/libcublas.so.13"},
             {"CUDA_VISIBLE_DEVICES", ""}};
  for (auto& [name, value] : more) env[name] = value;
  return env;
}

Env OddDriver(const std::string& how) {
  return Bare({{"DDPRUN_CUDA_LIB", Runfile("tests/launcher/doctor/libodd_driver.so")},
               {"DDPRUN_TEST_DRIVER", how}});
}

// The one line on stderr of a ddprun that ended with `code`; its stdout goes to `out`.
std::string ErrorLine(const std::vector<std::string>& arguments, const Env& env, int code,
                      std::string* out = nullptr) {
  Job job;
  auto ddprun = job.RunRaw(arguments, {.env = env});
  REQUIRE_MESSAGE(ddprun->Wait() == code, ddprun->Describe());
  const std::string err = ddprun->err();
  CHECK_MESSAGE(std::count(err.begin(), err.end(), '\n') == (code == 0 ? 0 : 1),
                ddprun->Describe());
  if (code != 0) CHECK_MESSAGE(err.rfind("ddprun: error: ", 0) == 0, ddprun->Describe());
  if (out != nullptr) *out = ddprun->out();
  CHECK(job.IsGone());
  return err;
}

TEST_CASE("doctor: a machine without a GPU is described, and nothing fails") {
  std::string out;
  ErrorLine({"doctor"}, Bare(), 0, &out);
  for (const char* part :
       {"driver      not found\n            -> CUDA driver: DDPRUN_CUDA_LIB: /no/such/libcuda.so.1",
        "\ngpus        none\n", "\nnccl        not found\n            -> NCCL: ",
        "\ncublas      not found\n", "\ntoolkit     ", "\nnetwork     ", "\nmemlock     ",
        "\nnofile      ", "\n/dev/shm    ", "\nnuma nodes  ",
        "\nverdict     CUDA training cannot run here; training on the CPU can\n"}) {
    CHECK(out == Contains(part));
  }
}

// As pip installs it: beside the Python under which scripts run. The library there is none, so that
// its name in a message shows that it was looked at.
TEST_CASE(
    "doctor: the environment where ddprun is installed is looked at, and so it is by workers") {
  namespace fs = std::filesystem;
  Job job;
  const fs::path root = job.File("env"), bin = root / "bin";
  const fs::path library = root / "lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";
  fs::create_directories(bin);
  fs::create_directories(library.parent_path());
  for (const fs::path& file : {root / "pyvenv.cfg", library}) std::ofstream(file) << "none\n";
  fs::copy_file(Runfile("ddprun"), bin / "ddprun");
  fs::copy_file("/bin/true", bin / "python3");
  const std::string ddprun = (bin / "ddprun").string(), python = (bin / "python3").string();
  Env env = Bare({{"DDPRUN_NCCL_PYTHON", ""}, {"PYTHON_EXEC", ""}});
  env.erase("DDPRUN_NCCL_LIB");

  Subprocess doctor({ddprun, "doctor"}, {.env = env});
  REQUIRE_MESSAGE(doctor.Wait() == 0, doctor.Describe());
  if (doctor.out().find("\nnccl        not found") != std::string::npos) {
    CHECK(doctor.out() == Contains(library.string() + ": "));
  }
  const std::vector<std::string> show = {ddprun, "--standalone", "/bin/sh", "-c",
                                         "echo \"python=$DDPRUN_NCCL_PYTHON\""};
  auto worker = job.RunProgram(show, {.env = env});
  REQUIRE_MESSAGE(worker->Wait() == 0, worker->Describe());
  CHECK(worker->out() == "python=" + python + "\n");
  env["PYTHON_EXEC"] = "/usr/bin/python3";  // the user's word wins
  auto told = job.RunProgram(show, {.env = env});
  REQUIRE_MESSAGE(told->Wait() == 0, told->Describe());
  CHECK(told->out() == "python=\n");
}

TEST_CASE("doctor: with --require cuda the first reason is the error, the rest still shown") {
  std::string out;
  const std::string err = ErrorLine({"doctor", "--require", "cuda"}, Bare(), 120, &out);
  CHECK(err == Contains("doctor: CUDA training cannot run here: CUDA driver: DDPRUN_CUDA_LIB: "));
  CHECK(out == Contains("\nverdict     "));
}

TEST_CASE("doctor: the JSON has the same verdict") {
  std::string out;
  ErrorLine({"doctor", "--json", "--require=cuda"}, Bare(), 120, &out);
  CHECK(out.rfind("{\n  \"ddprun\": ", 0) == 0);
  CHECK(out == Contains("\n  \"driver\": {\"file\": null, "));
  CHECK(out == Contains("\"cuda_training\": {\"possible\": false, \"reason\": \"CUDA driver: "));
}

TEST_CASE("doctor: a driver that is too old is named with what it lacks") {
  const std::string err = ErrorLine({"doctor", "--require=cuda"}, OddDriver("print"), 120);
  CHECK(err == Contains("libodd_driver.so: it has no cuDriverGetVersion"));
  CHECK(err == Contains("update the NVIDIA driver"));
}

TEST_CASE("doctor: what a driver prints is neither taken for facts nor shown") {
  std::string out;
  const std::string err =
      ErrorLine({"doctor", "--json", "--require=cuda"}, OddDriver("print"), 120, &out);
  CHECK(out != Contains("/a/lie"));
  CHECK(err != Contains("chatter"));
}

TEST_CASE("doctor: killed while a driver hangs, it leaves no process") {
  for (const int signal : {9, 15}) {
    Job job;
    Env env = OddDriver("hang");
    env["DDPRUN_TEST_DRIVER_HANGS"] = job.File("hangs");
    auto ddprun = job.RunRaw({"doctor"}, {.env = env});
    REQUIRE(job.WaitForFile("hangs"));
    ddprun->Signal(signal);
    CHECK(ddprun->Wait() == 128 + signal);
    CHECK(job.IsGone());
  }
}

TEST_CASE("doctor: a driver that takes its process down is reported, what was known is kept") {
  std::string out;
  const std::string err = ErrorLine({"doctor", "--require=cuda"}, OddDriver("crash"), 120, &out);
  CHECK(err ==
        Contains(
            "the NVIDIA driver (opening its library) ended the process that asked it: killed by"));
  CHECK(out == Contains("driver      unknown"));
  CHECK(out == Contains("\nnetwork     "));
}

TEST_CASE("doctor: a driver that hangs costs ten seconds and leaves no process") {
  std::string out;
  const std::string err = ErrorLine({"doctor", "--require=cuda"}, OddDriver("hang"), 120, &out);
  CHECK(err == Contains("the NVIDIA driver (opening its library) did not answer in 10 s; "));
  CHECK(out == Contains("\n/dev/shm    "));
}

TEST_CASE("doctor: output that cannot be written ends with 120") {
  Job job;
  Subprocess ddprun({"/bin/sh", "-c", "exec \"$0\" doctor >/dev/full", Runfile("ddprun")});
  REQUIRE_MESSAGE(ddprun.Wait() == 120, ddprun.Describe());
  CHECK(ddprun.err() == Contains("write to stdout"));
}

TEST_CASE("nproc_per_node: gpu without a GPU ends with 120 before anything starts") {
  const std::string toy = Runfile("tests/e2e/toy_worker");
  std::string out;
  const std::string err = ErrorLine({"--nproc-per-node=gpu", toy}, Bare(), 120, &out);
  CHECK(err ==
        Contains("--nproc-per-node 'gpu': CUDA driver: DDPRUN_CUDA_LIB: /no/such/libcuda.so.1"));
  CHECK(err == Contains("; or give a number, or cpu ("));
  CHECK(out.empty());
  Env env = Bare({{"PET_NPROC_PER_NODE", "gpu"}});
  CHECK(ErrorLine({toy}, env, 120) == Contains("PET_NPROC_PER_NODE 'gpu': "));
  CHECK(ErrorLine({"--nproc-per-node=gpu", toy}, OddDriver("crash"), 120) ==
        Contains("the NVIDIA driver (opening its library) ended the process that asked it"));
}

TEST_CASE("nproc_per_node: what is wrong besides is found before the driver is asked") {
  // This driver would take ten seconds to be given up.
  const std::string toy = Runfile("tests/e2e/toy_worker");
  CHECK(ErrorLine({"--nproc-per-node=gpu", "--nnodes=0", toy}, OddDriver("hang"), 2) ==
        Contains("--nnodes '0': "));
  CHECK(ErrorLine({"--nproc-per-node=gpu", "./no-such"}, OddDriver("hang"), 127) ==
        Contains("'./no-such'"));
  CHECK(ErrorLine({"--nproc-per-node=2", "./no-such"}, OddDriver("hang"), 127) ==
        Contains("'./no-such'"));
}

TEST_CASE("nproc_per_node: auto without a GPU starts one worker for each CPU, as cpu does") {
  const auto ranks = [](const std::string& count) {
    Job job;
    auto ddprun = job.RunRaw({"--nproc-per-node=" + count, "/bin/sh", "-c", "echo $WORLD_SIZE"},
                             {.env = Bare({{"OMP_NUM_THREADS", "1"}})});
    REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
    CHECK(ddprun->err() == "");
    const std::string out = ddprun->out();
    return std::string(out, 0, out.find('\n'));
  };
  CHECK(ranks("auto") == ranks("cpu"));
}

TEST_CASE("nproc_per_node: auto with a driver in trouble says why it is the CPUs") {
  Job job;
  auto ddprun = job.RunRaw({"--nproc-per-node=auto", "true"}, {.env = OddDriver("crash")});
  REQUIRE_MESSAGE(ddprun->Wait() == 0, ddprun->Describe());
  CHECK(ddprun->err() ==
        Contains("ddprun: warning: --nproc-per-node 'auto': one worker for each of "));
  CHECK(ddprun->err() == Contains("ended the process that asked it"));
}

}  // namespace
}  // namespace ddprun::testing
