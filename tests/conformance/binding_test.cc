// Which GPU and which CPUs a worker gets.
#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"

namespace ddprun::testing {
namespace {

TEST_CASE("conformance: each worker sees its GPU alone") {
  Compare({.name = "virtual_local_rank",
           .options = {"--standalone", "--nproc_per_node=2", "--virtual_local_rank"},
           .command = {"{programs}/env.py"},
           .env = {{"CUDA_VISIBLE_DEVICES", "3,5"}}});
}

TEST_CASE("conformance: more workers than visible GPUs") {
  Compare({.name = "virtual_local_rank_many",
           .options = {"--standalone", "--nproc_per_node=2", "--virtual-local-rank"},
           .command = {"{programs}/env.py"},
           .env = {{"CUDA_VISIBLE_DEVICES", "3"}}});
}

TEST_CASE("conformance: a binding that is none") {
  Compare({.name = "numa_binding_unknown",
           .options = {"--standalone", "--numa_binding=nowhere", "--no_python"},
           .command = {"/bin/true"}});
}

}  // namespace
}  // namespace ddprun::testing
