#include "rendezvous/base/host_name.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include "tests/support/in_child.h"
#include "tests/support/skip.h"

namespace ddprun {
namespace {

using testing::InChild;

// HostName in a process that sees the machine as named `name`; "not allowed": it may not.
std::string NameOfMachineNamed(const std::string& name) {
  return InChild({}, [&name] {
    const bool is_named = unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
    return is_named ? HostName() : "not allowed";
  });
}

TEST_CASE("host name: it is the machine's, up to the longest there may be") {
  const std::string longest(64, 'n');
  const std::string name = NameOfMachineNamed(longest);
  if (name == "not allowed") return testing::SkipTest("no right to a host name of its own");
  CHECK(name == longest);
}

TEST_CASE("host name: a machine without a name is localhost") {
  const std::string name = NameOfMachineNamed("");
  if (name == "not allowed") return testing::SkipTest("no right to a host name of its own");
  CHECK(name == "localhost");
}

}  // namespace
}  // namespace ddprun
