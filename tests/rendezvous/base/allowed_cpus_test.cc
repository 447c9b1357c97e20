#include "rendezvous/base/allowed_cpus.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <string>
#include <thread>

#include "tests/support/in_child.h"

namespace ddprun::testing {
namespace {

TEST_CASE("allowed CPUs: as many as the standard library counts") {
  CHECK(AllowedCpus().size() == std::thread::hardware_concurrency());
}

TEST_CASE("allowed CPUs: those of a mask that is narrowed, by their numbers") {
  const std::set<int> all = AllowedCpus();
  REQUIRE(!all.empty());
  const int last = *all.rbegin();
  const std::string seen = InChild({}, [last] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(last, &mask);
    if (sched_setaffinity(0, sizeof mask, &mask) != 0) return std::string("not narrowed");
    std::string text;
    for (const int cpu : AllowedCpus()) text += std::to_string(cpu) + " ";
    return text;
  });
  CHECK(seen == std::to_string(last) + " ");
}

}  // namespace
}  // namespace ddprun::testing
