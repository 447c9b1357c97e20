// ddprun under a real Slurm of four nodes with eight CPUs and four (pretended) GPUs each. Runs on
// its controller host (in_slurm.sh).
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/strings/str_join.h"
#include "tests/gates/gates.h"
#include "tests/slurm/lab.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::slurm {
namespace {

using testing::Runfile;
using testing::Subprocess;
using testing::TempDir;

TEST_CASE("slurm: srun ddprun needs no options") {
  const Result result = Run({.slurm = {"-N4"}, .steps = {"print:{rank}", "env:WORLD_SIZE@0"}});
  CHECK_MESSAGE(result.code == 0, result.err);
  CHECK(SortedLines(result.out) == Words{"0", "1", "2", "3", "WORLD_SIZE=4"});
  CHECK(result.err == Contains(": 4 nodes, node rank 2, head n1:12"));
  CheckNothingIsLeft();
}

// The tests' nodes share the disk of one machine.
TEST_CASE(
    "slurm: where the step's folder is the cluster's, its nodes have a token, and nobody says so") {
  const TempDir folder;
  const std::string shared = std::string(",") + testing::kSharedDisk + "=1";
  const Result result =
      Run({.slurm = {"-N4", "--chdir=" + folder.path().string(), "--export=ALL" + shared},
           .steps = {"env:MASTER_ADDR", "connect"},
           .ddprun = testing::kGatedDdprun});
  CHECK_MESSAGE(result.code == 0, result.err);
  CHECK(CountOf(result.out, "MASTER_ADDR=127.0.0.1\n") == 4);
  CHECK(CountOf(result.out, "connected\n") == 4);
  CHECK(result.err == Contains("agents, the workers' store and ddp's tcp backend are encrypted"));
  // The file goes with the job.
  CHECK(std::filesystem::is_empty(folder.path()));
  CheckNothingIsLeft();
}

TEST_CASE("slurm: a worker for each GPU of the task") {
  const Result result =
      Run({.slurm = {"-N3", "-w", "n[1-3]", "--gpus-per-node=2"}, .steps = {"print:{rank}"}});
  CHECK_MESSAGE(result.code == 0, result.err);
  CHECK(SortedLines(result.out) == Words{"0", "1", "2", "3", "4", "5"});
  CHECK(result.err == Contains(": 3 nodes, node rank 0, head n1:"));
  CHECK(result.err == Contains(", 2 workers each\n"));
}

TEST_CASE("slurm: a terminal, which is the first task's alone, makes no job of one node") {
  const std::string step = "srun -N2 --pty " + Runfile("ddprun") + " " + Worker();
  Subprocess script({"/usr/bin/script", "-qec", step + " env:WORLD_SIZE@0", "/dev/null"});
  REQUIRE_MESSAGE(script.Wait() == 0, script.Describe());
  CHECK(script.out() == Contains("WORLD_SIZE=2"));
}

// The lines of workers that say the same on each of `nodes` nodes, sorted.
Words OnEach(int nodes, const Words& devices) {
  Words lines;
  for (int node = 0; node < nodes; ++node) {
    for (const std::string& device : devices) lines.push_back("CUDA_VISIBLE_DEVICES=" + device);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_CASE("slurm: --gpus-per-task: a worker for each, who sees all of them, or its own alone") {
  const Words slurm = {"-N2", "-n2", "--gpus-per-task=3"};
  const Words steps = {"env:CUDA_VISIBLE_DEVICES"};
  const Result all = Run({.slurm = slurm, .steps = steps});
  CHECK_MESSAGE(all.code == 0, all.err);
  CHECK(SortedLines(all.out) == OnEach(2, {"0,1,2", "0,1,2", "0,1,2"}));
  CHECK(all.err == Contains(", 3 workers each\n"));
  const Result own = Run({.slurm = slurm, .options = {"--virtual-local-rank"}, .steps = steps});
  CHECK_MESSAGE(own.code == 0, own.err);
  CHECK(SortedLines(own.out) == OnEach(2, {"0", "1", "2"}));
}

// Slurm itself names slices of a GPU where it has found them by NVML; here its prolog does.
TEST_CASE("slurm: slices of GPUs: a worker for each name, whatever Slurm counts") {
  const testing::TempDir folder;
  const std::string first = "MIG-1f2e3d4c-0001-5a5b-8c8d-0123456789ab";
  const std::string second = "MIG-1f2e3d4c-0002-5a5b-8c8d-0123456789ab";
  const std::string names = first + "," + second, prolog = folder.File("prolog.sh");
  testing::WriteFile(prolog, "#!/bin/bash\necho export CUDA_VISIBLE_DEVICES=" + names + "\n");
  std::filesystem::permissions(prolog, std::filesystem::perms::owner_all);
  const Words slurm = {"-N2", "--gpus-per-node=1", "--task-prolog=" + prolog};
  const Words steps = {"env:CUDA_VISIBLE_DEVICES"};
  const Result all = Run({.slurm = slurm, .steps = steps});
  CHECK_MESSAGE(all.code == 0, all.err);
  CHECK(SortedLines(all.out) == OnEach(2, {names, names}));
  CHECK(all.err == Contains(", 2 workers each\n"));
  const Result own = Run({.slurm = slurm, .options = {"--virtual-local-rank"}, .steps = steps});
  CHECK_MESSAGE(own.code == 0, own.err);
  CHECK(SortedLines(own.out) == OnEach(2, {first, second}));
}

TEST_CASE("slurm: node ranks follow Slurm's") {
  const Result result = Run({.slurm = {"-N2", "-w", "n4,n3"}, .steps = {"env:GROUP_RANK@1"}});
  CHECK_MESSAGE(result.code == 0, result.err);
  CHECK(SortedLines(result.out) == Words{"GROUP_RANK=1"});
  CHECK(result.err == Contains(": 2 nodes, node rank 0, head n3:"));
}

TEST_CASE("slurm: fewer nodes than the step has, a range, an id of the user's") {
  const Result range = Run({.slurm = {"-N3"},
                            .options = {"--nnodes=2:3", "--nproc-per-node=2", "--rdzv-id=mine"},
                            .steps = {"print:{rank}", "env:TORCHELASTIC_RUN_ID@0"}});
  CHECK_MESSAGE(range.code == 0, range.err);
  CHECK(SortedLines(range.out) == Words{"0", "1", "2", "3", "4", "5", "TORCHELASTIC_RUN_ID=mine"});
  const Result one =
      Run({.slurm = {"-N2"}, .options = {"--nnodes=1"}, .steps = {"env:WORLD_SIZE"}});
  CHECK_MESSAGE(one.code == 0, one.err);
  CHECK(SortedLines(one.out) == Words{"WORLD_SIZE=1", "WORLD_SIZE=1"});
}

TEST_CASE("slurm: a failing worker's code, one report and a line from each other node") {
  const Result result = Run({.slurm = {"-N4"}, .steps = {"err:boom@2", "exit:7@2", "wait"}});
  CHECK_MESSAGE(result.code == 7, result.err);
  CHECK(CountOf(result.err, "Root Cause") == 1);
  CHECK(result.err == Contains("host      : n3 (node_rank: 2)"));
  CHECK(result.err == Contains("  boom\n"));
  CHECK(CountOf(result.err, "ddprun: exit code 7: that of rank 2 on n3; n1 prints the report\n") ==
        3);
  CHECK(CountOf(result.err, "ddprun: exit code 7: that of rank 2 on n3\n") == 1);
  CheckNothingIsLeft();
}

TEST_CASE("slurm: a worker's death by a signal is 128+n") {
  const Result result = Run({.slurm = {"-N2"}, .steps = {"die:11@1", "wait"}});
  CHECK_MESSAGE(result.code == 139, result.err);
}

TEST_CASE("slurm: what contradicts is one line and 2") {
  const Result tasks = Run({.slurm = {"-N2", "--ntasks-per-node=4"}, .steps = {"print:x"}});
  CHECK(tasks.code == 2);
  CHECK(tasks.out == "");
  CHECK(CountOf(tasks.err, "ddprun: error: ") == 1);
  CHECK(tasks.err ==
        Contains(" has 4 tasks on a node; expected one, which starts that node's workers: srun "
                 "--ntasks-per-node=1"));
  const Result nodes = Run({.slurm = {"-N2"}, .options = {"--nnodes=3"}, .steps = {"print:x"}});
  CHECK(nodes.code == 2);
  CHECK(CountOf(nodes.err, "ddprun: error: ") == 1);
  CHECK(nodes.err == Contains("--nnodes '3': Slurm step "));
}

TEST_CASE("slurm: steps of one job at the same time, on the same nodes, are two jobs") {
  const testing::TempDir folder;
  const std::string ddprun = Runfile("ddprun"), worker = Worker();
  const std::string step = " & srun -N2 --overlap " + ddprun + " --rdzv-id=one " + worker +
                           " print:{rank} env:WORLD_SIZE@0";
  Subprocess salloc(
      {"/usr/bin/salloc", "-N2", "/bin/bash", "-c", "true" + step + step + " & wait"});
  REQUIRE_MESSAGE(salloc.Wait() == 0, salloc.Describe());
  CHECK(SortedLines(salloc.out()) == Words{"0", "0", "1", "1", "WORLD_SIZE=2", "WORLD_SIZE=2"});
}

TEST_CASE("slurm: steps that share an endpoint are two jobs, and the second is refused") {
  const testing::TempDir folder;
  const std::string go = folder.path() / "go";
  const Words options = {"--nnodes=2", "--rdzv-id=one", "--rdzv-endpoint=n1:29411"};
  const std::string step = " & srun -N2 --overlap " + Runfile("ddprun") + " " +
                           absl::StrJoin(options, " ") + " " + Worker() +
                           " print:{rank} until:" + go;
  Subprocess salloc(
      {"/usr/bin/salloc", "-w", "n1,n2", "/bin/bash", "-c", "true" + step + step + " & wait"});
  REQUIRE_MESSAGE(testing::Eventually([&] {
                    return CountOf(salloc.err(), ", the nodes here of Slurm step ") >= 2 &&
                           CountOf(salloc.out(), "\n") == 2;
                  }),
                  salloc.Describe());
  testing::WriteFile(go, "");
  REQUIRE_MESSAGE(salloc.Wait() == 0, salloc.Describe());
  CHECK(SortedLines(salloc.out()) == Words{"0", "1"});
}

TEST_CASE("slurm: a spare that comes when a short job is over does not wait for another") {
  const testing::TempDir folder;
  const std::string go = folder.path() / "go";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  const std::string late = "test $SLURM_NODEID = 2 && read -r word < " + go + "; exec " +
                           Runfile("ddprun") + " --nnodes=2 " + Worker() + " print:{rank}";
  Subprocess srun({"/usr/bin/srun", "-N3", "/bin/bash", "-c", late});
  REQUIRE_MESSAGE(WaitForCount(srun, "\n", 2), srun.Describe());
  testing::WriteFile(go, "now\n");
  CHECK_MESSAGE(srun.Wait() == 0, srun.Describe());
  CHECK(SortedLines(srun.out()) == Words{"0", "1"});
}

TEST_CASE("slurm: steps of one node each form one job on purpose") {
  std::string steps = "true";
  for (const char* node : {"n1", "n2"}) {
    steps += std::string(" & srun -N1 -w ") + node + " " + Runfile("ddprun") +
             " --nnodes=2 --rdzv-id=one --rdzv-endpoint=n1:29412 " + Worker() + " print:{rank}";
  }
  Subprocess salloc({"/usr/bin/salloc", "-w", "n1,n2", "/bin/bash", "-c", steps + " & wait"});
  REQUIRE_MESSAGE(salloc.Wait() == 0, salloc.Describe());
  CHECK(SortedLines(salloc.out()) == Words{"0", "1"});
}

TEST_CASE("slurm: more agents than nodes end with 121, whatever options say") {
  const testing::TempDir folder;
  const std::string go = folder.path() / "go";
  const auto srun = Start({.slurm = {"-N2", "-w", "n1,n2", "--ntasks-per-node=2"},
                           .options = {"--nnodes=2", "--rdzv-endpoint=n1:29413"},
                           .steps = {"print:{rank}", "until:" + go}});
  REQUIRE_MESSAGE(
      testing::Eventually([&] { return CountOf(srun->err(), "--ntasks-per-node=1") == 2; }),
      srun->Describe());
  testing::WriteFile(go, "");
  CHECK_MESSAGE(srun->Wait() == 121, srun->Describe());
}

TEST_CASE("slurm: the second step of a job on other nodes has its own head") {
  Subprocess salloc({"/usr/bin/salloc", "-N4", "/usr/bin/srun", "-N2", "--relative=2",
                     Runfile("ddprun"), Worker(), "print:{rank}"});
  REQUIRE_MESSAGE(salloc.Wait() == 0, salloc.Describe());
  CHECK(salloc.err() == Contains(": 2 nodes, node rank 1, head n3:"));
  CHECK(SortedLines(salloc.out()) == Words{"0", "1"});
}

TEST_CASE("slurm: a head that is no node of the step is refused") {
  Subprocess salloc({"/usr/bin/salloc", "-N4", "/usr/bin/srun", "-N2", "--relative=2",
                     Runfile("ddprun"), "--nnodes=2", "--rdzv-endpoint=n1:29400", Worker(),
                     "wait"});
  REQUIRE_MESSAGE(salloc.Wait() == 2, salloc.Describe());
  CHECK(salloc.err() ==
        Contains("n1 is a node of the job and none of this step, whose nodes are 'n[3-4]'"));
}

TEST_CASE("slurm: scancel stops the workers, and nothing is left") {
  const auto srun = Start({.slurm = {"-N4", "-J", "cancelled"}, .steps = {"print:up", "wait"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "up", 4), srun->Describe());
  Subprocess scancel({"/usr/bin/scancel", "-n", "cancelled"});
  CHECK(scancel.Wait() == 0);
  const std::optional<int> code = srun->Wait();
  CHECK_MESSAGE((code && *code != 0), srun->Describe());
  CheckNothingIsLeft();
}

TEST_CASE("slurm: a step that is killed leaves nothing behind the next, and its nodes serve that") {
  const auto srun =
      Start({.slurm = {"-N4"}, .steps = {"ignore:15", "grandchild", "print:up", "wait"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "up", 4), srun->Describe());
  Output({"/usr/bin/scancel", "-s", "KILL", JobOf(srun->err()) + ".0"});
  CHECK_MESSAGE(srun->Wait() == 137, srun->Describe());
  CheckNextJobTidies(4, {"-N4"});
}

TEST_CASE("slurm: the workers of a node share its copy of srun's standard input") {
  // Each takes one line of two bytes by one read.
  const std::string step =
      Runfile("ddprun") + " --nproc-per-node=2 --no-python bash -c 'echo $GROUP_RANK$(head -c 2)'";
  const auto read_by = [&step](const std::string& options) {
    const std::string line = "printf 'a\\nb\\n' | srun -N2 " + options + " " + step;
    Subprocess shell({"/bin/bash", "-c", line});
    CHECK_MESSAGE(shell.Wait() == 0, shell.Describe());
    return SortedLines(shell.out());
  };
  CHECK(read_by("") == Words{"0a", "0b", "1a", "1b"});
  CHECK(read_by("--input=0") == Words{"0a", "0b", "1", "1"});
  CHECK(read_by("--input=none") == Words{"0", "0", "1", "1"});
}

TEST_CASE("slurm: a signal to a step reaches each worker once") {
  const auto srun =
      Start({.slurm = {"-N2", "-J", "signalled"},
             .options = {"--nproc-per-node=2"},
             .steps = {"block:12", "block:10", "env:SLURM_JOB_ID@0", "print:up", "count:10"}});
  REQUIRE_MESSAGE(WaitForCount(*srun, "up", 4), srun->Describe());
  const std::string out = srun->out(), name = "SLURM_JOB_ID=";
  const size_t at = out.find(name) + name.size();
  const std::string step = out.substr(at, out.find('\n', at) - at) + ".0";
  Subprocess first({"/usr/bin/scancel", "-s", "USR1", step});
  CHECK(first.Wait() == 0);
  REQUIRE_MESSAGE(testing::Eventually([&] { return CountOf(srun->out(), "got it") >= 4; }),
                  srun->Describe());
  // By then ddprun has passed on what it passes on: it holds a signal for 20 ms.
  constexpr std::chrono::milliseconds kPassedOn(100);  // lower bound: five times that
  const auto begin = std::chrono::steady_clock::now();
  CHECK(testing::Eventually([&] { return std::chrono::steady_clock::now() - begin > kPassedOn; }));
  Subprocess second({"/usr/bin/scancel", "-s", "USR2", step});
  CHECK(second.Wait() == 0);
  CHECK_MESSAGE(srun->Wait() == 0, srun->Describe());
  CHECK(CountOf(srun->out(), "got it") == 4);
  CheckNothingIsLeft();
}

TEST_CASE("slurm: a batch script of three lines") {
  const testing::TempDir folder;
  const std::string out = folder.path() / "out", script = folder.path() / "job.sh";
  testing::WriteFile(script, "#!/bin/bash\n#SBATCH --nodes=3\nsrun " + Runfile("ddprun") + " " +
                                 Worker() + " print:{rank} exit:9@1\n");
  Subprocess sbatch({"/usr/bin/sbatch", "-W", "-w", "n[1-3]", "-o", out, script});
  CHECK_MESSAGE(sbatch.Wait() == 9, sbatch.Describe());
  const std::string text = testing::ReadFile(out);
  CHECK(text == Contains("node rank 2, head n1:"));
  CHECK(CountOf(text, "Root Cause") == 1);
}

}  // namespace
}  // namespace ddprun::slurm
