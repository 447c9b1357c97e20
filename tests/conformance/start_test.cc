// What is started: programs, numbers of workers, the environment that each gets.
#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"

namespace ddprun::testing {
namespace {

TEST_CASE("conformance: each of four workers has its rank") {
  Compare({.name = "touch",
           .options = {"--standalone", "--nproc_per_node=4"},
           .command = {"{programs}/touch.py"}});
}

TEST_CASE("conformance: a shell script is started as it is with --no_python") {
  Compare({.name = "no_python",
           .options = {"--nproc-per-node", "4", "--no-python"},
           .command = {"{programs}/touch.sh", "shell."}});
}

TEST_CASE("conformance: --no_python and --module contradict each other") {
  Compare({.name = "no_python_module",
           .options = {"--no_python", "--module"},
           .command = {"{programs}/touch.sh"}});
}

TEST_CASE("conformance: one worker by default") {
  Compare({.name = "default_nproc", .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: the environment of a standalone job") {
  Compare({.name = "env_standalone",
           .options = {"--standalone", "--nproc_per_node=2", "--max_restarts=3"},
           .command = {"{programs}/env.py", "--nproc_per_node=7", "-x", "a b"}});
}

TEST_CASE("conformance: the environment with a master's address and port") {
  Compare({.name = "env_static",
           .options = {"--master_addr=localhost", "--master_port={port}", "--nproc_per_node=2",
                       "--rdzv_id=job1"},
           .command = {"{programs}/env.py"},
           .env = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}, {"OMP_NUM_THREADS", "3"}}});
}

TEST_CASE("conformance: NCCL's errors are handled unless the user has said otherwise") {
  const auto expect = [](Scenario scenario, const std::string& given, const std::string& line) {
    scenario.options = {"--standalone", "--nproc_per_node=2", "--no_python"};
    scenario.command = {"{toy}", "env:TORCH_NCCL_ASYNC_ERROR_HANDLING"};
    scenario.env = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", given}};
    scenario.after = [&line](Run& run) {
      CHECK_MESSAGE(run.observed().at("out") == line + " | " + line, run.Describe());
    };
    Compare(scenario);
  };
  expect({.name = "async_error_handling"}, "", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
  expect({.name = "async_error_handling_0"}, "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0");
  expect({.name = "async_error_handling_3"}, "3", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3");
}

TEST_CASE("conformance: an endpoint alone") {
  // Named by no host, as both take the port of it.
  Compare({.name = "env_endpoint",
           .options = {"--rdzv_endpoint=localhost:{port}", "--nproc_per_node=2", "--rdzv_id=job1"},
           .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: the environment of two nodes that meet at an endpoint") {
  Compare({.name = "env_c10d",
           .options = {"--nnodes=2", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_id=job1",
                       "--rdzv_endpoint=localhost:{port}", "--role=trainer"},
           .nodes = {{}, {}},
           .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: nodes of different sizes and roles, ranked by --node_rank") {
  Compare({.name = "env_roles",
           .options = {"--nnodes=3", "--master_addr=localhost", "--master_port={port}"},
           .nodes = {{"--node_rank=0", "--nproc_per_node=1", "--role=chief"},
                     {"--node_rank=1", "--nproc_per_node=2", "--role=worker"},
                     {"--node_rank=2", "--nproc_per_node=3", "--role=worker"}},
           .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: ranks within roles, over seven nodes of three roles") {
  Scenario scenario = {.name = "env_seven_roles",
                       .options = {"--nnodes=7", "--nproc_per_node=1", "--master_addr=localhost",
                                   "--master_port={port}"},
                       .nodes = {},
                       .command = {"{programs}/env.py"}};
  const char* roles[] = {"a", "b", "c", "a", "b", "c", "a"};
  for (int rank = 0; rank < 7; ++rank) {
    scenario.nodes.push_back(
        {"--node_rank=" + std::to_string(rank), std::string("--role=") + roles[rank]});
  }
  Compare(scenario);
}

TEST_CASE("conformance: PET_ variables stand for options, and options win over them") {
  Compare({.name = "pet",
           .options = {"--role=cli"},
           .command = {"{programs}/env.py", "--role=mine", "--unknown"},
           .env = {{"PET_NPROC_PER_NODE", "3"},
                   {"PET_ROLE", "environment"},
                   {"PET_STANDALONE", "1"},
                   {"PET_NO_PYTHON", "0"},
                   {"PET_MAX_RESTARTS", "2"}}});
}

TEST_CASE("conformance: options in both spellings, abbreviated, given twice") {
  Compare({.name = "spellings",
           .options = {"--nproc-per-node=1", "--nproc_per_node=2", "--max-r", "4", "--standalone",
                       "--rol=first", "--role", "second"},
           .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: ${local_rank} in arguments") {
  Compare({.name = "macro",
           .options = {"--standalone", "--nproc_per_node=2"},
           .command = {"{programs}/env.py", "--device=${local_rank}", "${rank}"}});
}

TEST_CASE("conformance: dollars in arguments") {
  Compare({.name = "dollars",
           .options = {"--standalone"},
           .command = {"{programs}/env.py", "$$", "a$$b", "$$$$", "$$$", "$", "$local_rank",
                       "$$local_rank", "$${local_rank}", "$$${local_rank}", "${local_rank}$$",
                       "$local_rankx", "${local_rank", "${ local_rank}", "$LOCAL_RANK", "${}", "$5",
                       "${local_rank}${local_rank}", "$other$$"}});
}

TEST_CASE("conformance: '--' behind the script") {
  const std::string script = "{programs}/env.py";
  Compare({.name = "dashes",
           .options = {"--standalone"},
           .command = {script, "--", "--lr", "1", "--", "x"}});
  Compare({.name = "dashes_twice",
           .options = {"--standalone"},
           .command = {script, "--", "--", "--lr"}});
  Compare({.name = "dashes_alone", .options = {"--standalone"}, .command = {script, "--"}});
  Compare({.name = "dashes_later",
           .options = {"--standalone"},
           .command = {script, "--lr", "--", "1"}});
  Compare({.name = "dashes_before",
           .options = {"--standalone", "--"},
           .command = {script, "--", "--lr", "--"}});
  Compare({.name = "dashes_module",
           .options = {"--standalone", "-m"},
           .command = {"env", "--", "-m"},
           .env = {{"PYTHONPATH", "{programs}"}}});
}

TEST_CASE("conformance: a worker for each CPU") {
  Compare({.name = "nproc_cpu",
           .options = {"--standalone", "--nproc_per_node=cpu"},
           .command = {"{programs}/env.py"},
           .env = {{"OMP_NUM_THREADS", "1"}},  // set by both, but for one worker alone
           .is_worker_per_cpu = true});
}

TEST_CASE("conformance: without a GPU auto takes the CPUs") {
  Compare({.name = "nproc_auto",
           .options = {"--standalone", "--nproc_per_node=auto"},
           .command = {"{programs}/env.py"},
           .env = {{"CUDA_VISIBLE_DEVICES", "-1"}, {"OMP_NUM_THREADS", "1"}},
           .is_worker_per_cpu = true});
}

TEST_CASE("conformance: without a GPU a worker for each is refused") {
  Compare({.name = "nproc_gpu",
           .options = {"--standalone", "--nproc_per_node=gpu"},
           .command = {"{programs}/env.py"},
           .env = {{"CUDA_VISIBLE_DEVICES", "-1"}}});
}

}  // namespace
}  // namespace ddprun::testing
