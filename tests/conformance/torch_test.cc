// PyTorch programs over the launcher's store.
#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

TEST_CASE("conformance: a group by env://, DistributedDataParallel, collectives, checkpoints") {
  Compare(
      {.name = "torch_env",
       .options = {"--standalone", "--nproc_per_node=2"},
       .command = {"{programs}/torch_job.py", "env", "is_launched", "sum", "ddp", "collectives",
                   "checkpoint"},
       .needs_torch = true,
       .after = [](Run& run) { CHECK(run.observed().at("out") == Contains("launched True")); }});
}

TEST_CASE("conformance: a group by tcp://, on nodes of different sizes") {
  Compare({.name = "torch_tcp",
           .options = {"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:{port}",
                       "--rdzv_id=job1"},
           .nodes = {{"--nproc_per_node=1"}, {"--nproc_per_node=2"}},
           .command = {"{programs}/torch_job.py", "tcp", "sum", "collectives"},
           .needs_torch = true});
}

TEST_CASE("conformance: a monitored barrier tells rank 0 who did not come") {
  Compare({.name = "torch_monitored_barrier",
           .options = {"--standalone", "--nproc_per_node=3"},
           .command = {"{programs}/torch_job.py", "env", "monitored_barrier"},
           .needs_torch = true});
}

TEST_CASE("conformance: a group by a store of the program's own, at a fixed address") {
  Compare({.name = "torch_store",
           .options = {"--nproc_per_node=2", "--master_addr=localhost", "--master_port={port}"},
           .command = {"{programs}/torch_job.py", "store", "sum"},
           .needs_torch = true});
}

TEST_CASE("conformance: rank 0 hosts the store where the launcher may not") {
  // Both give the port back that they have found for rank 0, and seconds later it is bound: in a
  // network of their own, where they may have one, nobody else takes it meanwhile.
  const std::string own_network =
      "unshare --net true && exec unshare --net /bin/sh -c 'ip link set lo up && exec \"$@\"' sh "
      "\"$@\" || exec \"$@\"";
  Compare({.name = "torch_own_store",
           .options = {"--standalone", "--nproc_per_node=2"},
           .command = {"{programs}/torch_job.py", "env", "sum"},
           .needs_torch = true,
           .env = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}},
           .prefix = {"/bin/sh", "-c", own_network, "sh"}});
}

TEST_CASE("conformance: the environment where the launcher may not host the store") {
  Compare({.name = "env_own_store",
           .options = {"--standalone", "--nproc_per_node=2"},
           .command = {"{programs}/env.py"},
           .env = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}}});
}

TEST_CASE("conformance: 32 ranks") {
  Compare({.name = "torch_32_ranks",
           .options = {"--standalone", "--nproc_per_node=1"},
           .command = {"{programs}/many_ranks.py", "32"},
           .needs_torch = true});
}

TEST_CASE("conformance: keys of an earlier attempt") {
  Compare({.name = "torch_attempts",
           .options = {"--standalone", "--nproc_per_node=2", "--max_restarts=1"},
           .command = {"{programs}/attempts.py"},
           .needs_torch = true});
}

// ddprun alone: in the keys that torchrun keeps a group now and then finds addresses of the one
// before, and fails.
TEST_CASE("conformance: a group in each attempt") {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  const Scenario scenario = {.name = "torch_group_attempts",
                             .options = {"--standalone", "--nproc_per_node=2", "--max_restarts=1"},
                             .command = {"{programs}/attempts.py", "group"},
                             .needs_torch = true};
  Run run(Launcher::kDdprun, scenario);
  run.Finish();
  CHECK_MESSAGE(run.observed().at("exit") == "success", run.Describe());
  CHECK_MESSAGE(run.observed().at("out") ==
                    "attempt 0: key of attempt 0 seen: False | "
                    "attempt 1: key of attempt 0 seen: False",
                run.Describe());
}

}  // namespace
}  // namespace ddprun::testing
