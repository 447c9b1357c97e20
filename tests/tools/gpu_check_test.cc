// The folder of tools/gpu_check, without a GPU: what it says then, and its rows on the double of
// CUDA and NCCL (tests/gpu_double). The double does not run the trainer's kernels, so its rows run
// on the CPU here.
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

// The folder as it is taken to another machine.
class Folder {
 public:
  Folder() { Assemble(path()); }
  // As somebody names it.
  void Assemble(const std::string& path) const {
    Subprocess assemble({Runfile("tools/gpu_check_program/assemble"), path, Runfile("ddprun"),
                         Runfile("examples/train/train"), Runfile("tools/make_digits/make_digits"),
                         Runfile("tools/gpu_check_program/gpu_check")});
    REQUIRE_MESSAGE(assemble.Wait() == 0, assemble.Describe());
  }
  std::string path() const { return dir_.File("folder"); }

  // Starts `run` with `arguments`.
  std::unique_ptr<Subprocess> Run(std::vector<std::string> arguments,
                                  std::map<std::string, std::string> env) const {
    arguments.insert(arguments.begin(), path() + "/run");
    return std::make_unique<Subprocess>(arguments, Subprocess::Options{.env = std::move(env)});
  }
  std::unique_ptr<Subprocess> RunOnDouble(const std::string& rows,
                                          std::map<std::string, std::string> more = {}) const {
    const std::string library =
        std::filesystem::absolute(Runfile("tests/gpu_double/libgpu_double.so")).string();
    more["DDPRUN_CUDA_LIB"] = more["DDPRUN_NCCL_LIB"] = library;
    more["DDPRUN_DOUBLE_GPUS"] = "2";
    more["CUDA_VISIBLE_DEVICES"] = "";  // unset
    return Run({"--rows", rows, "--max_bytes", "65536", "--trainer_device", "cpu"}, more);
  }

  std::string json() const { return ReadFile(path() + "/results.json"); }
  void CheckJsonIsValid() const {
    Subprocess parser({"/usr/bin/env", "python3", "-m", "json.tool", path() + "/results.json"});
    CHECK_MESSAGE(parser.Wait() == 0, parser.Describe());
  }
  bool HasVerdict(const std::string& row, const std::string& verdict) const {
    return json().find("{\"name\": \"" + row + "\", \"verdict\": \"" + verdict + "\"") !=
           std::string::npos;
  }

 private:
  TempDir dir_;
};

constexpr auto kLong = 300s;  // several programs, one after the other

TEST_CASE("gpu_check: the folder is at most 60 MB and its scripts are whole") {
  const Folder folder;  // assemble refuses a larger one
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  CHECK(bytes > 1'000'000);
  CHECK(bytes <= 60'000'000);
  auto list = folder.Run({"--list"}, {});
  CHECK(list->Wait() == 0);
  CHECK(list->out() == Contains("shared_killed_4\n"));
  auto unknown = folder.Run({"--rows", "nothing"}, {});
  CHECK_MESSAGE(unknown->Wait() == 2, unknown->Describe());
  CHECK(unknown->err() == "run: no row is called 'nothing'; ./run --list names them\n");
}

TEST_CASE("gpu_check: made anew, the folder keeps what a run and its user put there") {
  const Folder folder;
  WriteFile(folder.path() + "/results.json", "{}");
  std::filesystem::remove(folder.path() + "/bin/train");
  folder.Assemble(folder.path() + "/");  // as a shell completes it
  CHECK(ReadFile(folder.path() + "/results.json") == "{}");
  CHECK(std::filesystem::exists(folder.path() + "/bin/train"));
  CHECK(std::filesystem::exists(folder.path() + "/run"));
  int entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    (void)entry;
    ++entries;
  }
  CHECK(entries == 3);
}

TEST_CASE("gpu_check: a folder that cannot be made is refused before the build") {
  const TempDir dir;
  WriteFile(dir.File("mine"), "");
  const auto refuse = [](const std::string& path, const std::string& words) {
    Subprocess assemble({Runfile("tools/gpu_check_program/assemble"), path});
    CHECK_MESSAGE(assemble.Wait() == 1, assemble.Describe());
    CHECK(assemble.err() == Contains(words));
  };
  refuse(dir.path(), " is not empty and is no folder of tools/gpu_check; give another DIR\n");
  refuse(dir.File("mine"), "/mine (File exists); give another DIR\n");
  refuse(dir.File("mine") + "/x", "/mine/x (Not a directory); give another DIR\n");
  CHECK(std::filesystem::exists(dir.File("mine")));
}

TEST_CASE("gpu_check: a machine without a GPU is told so in a line and gets exit code 120") {
  const Folder folder;
  auto run = folder.Run({}, {{"DDPRUN_CUDA_LIB", "/nowhere/libcuda.so.1"}});
  CHECK_MESSAGE(run->Wait() == 120, run->Describe());
  CHECK(run->out() ==
        Contains(" not run  no GPU: CUDA driver: DDPRUN_CUDA_LIB: /nowhere/libcuda.so.1"));
  CHECK(folder.HasVerdict("machine", "not run"));
  CHECK(folder.json().find("{\n  \"exit_code\": 120,\n") == 0);
  folder.CheckJsonIsValid();
}

TEST_CASE("gpu_check: nowhere to write is told before anything runs") {
  const Folder folder;
  auto run = folder.Run({}, {{"TMPDIR", "/nowhere"}});
  CHECK_MESSAGE(run->Wait() == 120, run->Describe());
  CHECK(run->err() == "run: TMPDIR: \"/nowhere\" is no directory\n");
  CHECK(run->out() == "");
  run = folder.Run({"--output", "/nowhere/results.json"}, {});
  CHECK_MESSAGE(run->Wait() == 120, run->Describe());
  CHECK(run->err() == Contains("write \"/nowhere/results.json\": No such file or directory; "));
}

TEST_CASE("gpu_check: its rows about collectives run through on the double") {
  const Folder folder;
  auto run = folder.RunOnDouble(
      "all_reduce,all_reduce_graph,overlap,shared_step_graph,shared_sums_2,shared_sums_4,"
      "shared_killed_2,shared_killed_4,gpus_sums,gpus_all_reduce,gpus_all_reduce_graph,"
      "gpus_overlap,gpus_killed,torch_job");
  REQUIRE_MESSAGE(run->Wait(kLong) == 0, run->Describe());
  for (const char* row : {"machine", "shared_sums_2", "shared_sums_4", "shared_killed_2",
                          "shared_killed_4", "gpus_sums", "gpus_killed"}) {
    CHECK_MESSAGE(folder.HasVerdict(row, "ok"), row << ": " << run->Describe());
  }
  // The double's speed means nothing: only that there are figures.
  for (const char* row : {"all_reduce", "overlap", "gpus_all_reduce", "gpus_overlap"}) {
    const bool has_figures = folder.HasVerdict(row, "ok") || folder.HasVerdict(row, "missed");
    CHECK_MESSAGE(has_figures, row << ": " << run->Describe());
  }
  for (const char* value :
       {"\"share_4096\": ", "\"bus_gb_s_65536\": ", "\"hidden_share\": ", "\"noticed_s\": "}) {
    CHECK(folder.json() == Contains(value));
  }
  folder.CheckJsonIsValid();
}

TEST_CASE("gpu_check: training on shared GPUs is compared, killed and resumed") {
  const Folder folder;
  auto run = folder.RunOnDouble("shared_training_2,shared_restart_2,shared_restart_4,gpus_restart");
  REQUIRE_MESSAGE(run->Wait(kLong) == 0, run->Describe());
  for (const char* row :
       {"shared_training_2", "shared_restart_2", "shared_restart_4", "gpus_restart"}) {
    CHECK_MESSAGE(folder.HasVerdict(row, "ok"), row << ": " << run->Describe());
  }
}

TEST_CASE("gpu_check: training with 16-bit gradients is compared with float32's") {
  const Folder folder;
  auto run = folder.RunOnDouble("compression,shared_compression_2,gpus_compression");
  REQUIRE_MESSAGE(run->Wait(kLong) == 0, run->Describe());
  for (const char* row : {"compression", "shared_compression_2", "gpus_compression"}) {
    CHECK_MESSAGE(folder.HasVerdict(row, "ok"), row << ": " << run->Describe());
  }
  for (const char* value : {"\"largest_difference_bf16\": ", "\"largest_difference_fp16\": "}) {
    CHECK(folder.json() == Contains(value));
  }
}

TEST_CASE("gpu_check: ddprun bench runs on the GPUs that are there, and its table is kept") {
  const Folder folder;
  auto run = folder.RunOnDouble("bench");
  REQUIRE_MESSAGE(run->Wait(kLong) == 0, run->Describe());
  CHECK_MESSAGE(folder.HasVerdict("bench", "ok"), run->Describe());
  for (const char* value : {"\"samples_per_second_dp_1\": ", "\"samples_per_second_ddp_2\": ",
                            "Both ways train the same batches"}) {
    CHECK(folder.json() == Contains(value));
  }
  folder.CheckJsonIsValid();
}

TEST_CASE("gpu_check: a driver too old for NCCL is told once, and nothing is tried on it") {
  const Folder folder;
  auto run = folder.RunOnDouble("all_reduce,shared_sums_2", {{"DDPRUN_DOUBLE_DRIVER", "12080"}});
  CHECK_MESSAGE(run->Wait(kLong) == 1, run->Describe());
  CHECK(folder.HasVerdict("machine", "FAILED"));
  CHECK(run->out() == Contains("is built for CUDA 13.0, and the driver serves CUDA 12.8"));
  CHECK(folder.HasVerdict("all_reduce", "not run"));
  CHECK(folder.HasVerdict("shared_sums_2", "not run"));
}

TEST_CASE("gpu_check: a row that fails is told with its output, and the exit code is 1") {
  const Folder folder;
  auto run = folder.RunOnDouble("shared_sums_2,shared_training_4",
                                {{"DDPRUN_DOUBLE_FAULT", "async_error=3@1"}});
  CHECK_MESSAGE(run->Wait(kLong) == 1, run->Describe());
  CHECK(folder.HasVerdict("shared_sums_2", "FAILED"));
  CHECK(folder.HasVerdict("shared_training_4", "ok"));
  CHECK(folder.json() == Contains("max of float32"));
  folder.CheckJsonIsValid();
}

TEST_CASE("gpu_check: the step of the trainer is timed with and without the library") {
  const Folder folder;
  Subprocess digits({folder.path() + "/bin/make_digits", folder.path() + "/digits", "--train",
                     "100", "--test", "10"});
  REQUIRE_MESSAGE(digits.Wait() == 0, digits.Describe());
  Subprocess step(
      {folder.path() + "/bin/gpu_check", "step_time", folder.path() + "/digits", "16", "8", "cpu"});
  REQUIRE_MESSAGE(step.Wait(kLong) == 0, step.Describe());
  CHECK(step.out() == Contains("value with_ms "));
  CHECK(step.out() == Contains("value without_ms "));
}

}  // namespace
}  // namespace ddprun::testing
