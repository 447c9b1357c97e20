// Each case in a process of its own: what is set stays set.
#include "worker_runtime/comm/nccl/nccl_environment.h"

#include <cstdlib>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"

namespace ddp::internal {
namespace {

using ddprun::testing::InChild;
using Variables = std::map<std::string, std::string>;

std::string Value(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "unset";
}

// "NCCL_GRAPH_REGISTER NCCL_SOCKET_IFNAME NCCL_RAS_ADDR" as they then are.
std::string SetIn(Variables env) {
  env.insert({{"NCCL_GRAPH_REGISTER", ""}, {"NCCL_SOCKET_IFNAME", ""}, {"NCCL_RAS_ADDR", ""}});
  return InChild(env, [] {
    SetNcclEnvironment();
    return Value("NCCL_GRAPH_REGISTER") + " " + Value("NCCL_SOCKET_IFNAME") + " " +
           Value("NCCL_RAS_ADDR");
  });
}

// PyTorch sets none of them.
TEST_CASE("nccl environment: NCCL registers nothing in a capture, and chooses all else itself") {
  CHECK(SetIn({}) == "0 unset unset");
}

TEST_CASE("nccl environment: what the user set stays") {
  CHECK(SetIn({{"NCCL_GRAPH_REGISTER", "1"}, {"NCCL_SOCKET_IFNAME", "eth7"}}) == "1 eth7 unset");
}

TEST_CASE("nccl environment: non-blocking communicators are refused") {
  const auto check = [](const std::string& blocking) {
    return InChild({{"NCCL_COMM_BLOCKING", blocking}},
                   [] { return CheckNcclEnvironment().ToString(); });
  };
  CHECK(check("") == "OK");
  CHECK(check("1") == "OK");
  for (const std::string text : {"0", "0x0", "false"}) {
    CHECK(check(text) == "FAILED_PRECONDITION: NCCL_COMM_BLOCKING is set (\"" + text +
                             "\"): the library makes blocking calls of NCCL, as PyTorch does; "
                             "unset it");
  }
}

TEST_CASE("nccl environment: NCCL_COMM_ID is refused with its value") {
  const auto check = [](const std::string& id) {
    return InChild({{"NCCL_COMM_ID", id}}, [] { return CheckNcclEnvironment().ToString(); });
  };
  CHECK(check("") == "OK");
  CHECK(check("10.0.0.1:5000") ==
        "FAILED_PRECONDITION: NCCL_COMM_ID is set (\"10.0.0.1:5000\"): NCCL would use a public "
        "constant as the group's secret; unset it");
  CHECK(InChild({}, [] {
          setenv("NCCL_COMM_ID", "", 1);
          return CheckNcclEnvironment().ToString();
        }) == "OK");
}

}  // namespace
}  // namespace ddp::internal
