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

const Variables kNothingSet = {{"NCCL_SOCKET_IFNAME", ""},
                               {"NCCL_RAS_ADDR", ""},
                               {"NCCL_COMM_ID", ""},
                               {"NCCL_GRAPH_REGISTER", ""}};

std::string Value(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "unset";
}

// "NCCL_SOCKET_IFNAME NCCL_RAS_ADDR" as they then are.
std::string SetIn(Variables env, const std::string& address, uint16_t ras_port,
                  bool spans_hosts = false) {
  env.insert(kNothingSet.begin(), kNothingSet.end());
  return InChild(env, [&] {
    SetNcclEnvironment(address, spans_hosts, ras_port);
    return Value("NCCL_SOCKET_IFNAME") + " " + Value("NCCL_RAS_ADDR");
  });
}

TEST_CASE("nccl environment: the interface is the one that has the rank's address") {
  CHECK(SetIn({}, "127.0.0.1", 0) == "=lo unset");
  // With a scope, as a link-local address has one.
  CHECK(SetIn({}, "127.0.0.1%lo", 0) == "=lo unset");
}

// Debian gives a host's own name 127.0.1.1: no other host is reached from there.
TEST_CASE("nccl environment: between hosts the loopback interface leaves NCCL its choice") {
  for (const std::string address : {"127.0.0.1", "127.0.0.1%lo"}) {
    CAPTURE(address);
    CHECK(SetIn({}, address, 0, /*spans_hosts=*/true) == "unset unset");
  }
  CHECK(SetIn({{"NCCL_SOCKET_IFNAME", "lo"}}, "127.0.0.1", 0, /*spans_hosts=*/true) == "lo unset");
}

TEST_CASE("nccl environment: an address that no interface has, or none, leaves NCCL its choice") {
  for (const std::string address : {"240.0.0.1", "", "%lo", "host.example", "127.0.0.1.5"}) {
    CAPTURE(address);
    CHECK(SetIn({}, address, 0) == "unset unset");
  }
}

TEST_CASE("nccl environment: each job has an address of its own for NCCL's service") {
  CHECK(SetIn({}, "", 4711) == "unset 127.0.0.1:4711");
}

TEST_CASE("nccl environment: what the user set stays") {
  CHECK(SetIn({{"NCCL_SOCKET_IFNAME", "eth7"}}, "127.0.0.1", 4711) == "eth7 127.0.0.1:4711");
  CHECK(SetIn({{"NCCL_RAS_ADDR", "10.0.0.1:9"}}, "127.0.0.1", 4711) == "=lo 10.0.0.1:9");
}

TEST_CASE("nccl environment: NCCL registers nothing in a capture, unless the user wants it") {
  const auto set_in = [](Variables env) {
    env.insert(kNothingSet.begin(), kNothingSet.end());
    return InChild(env, [] {
      SetNcclEnvironment("", false, 0);
      return Value("NCCL_GRAPH_REGISTER");
    });
  };
  CHECK(set_in({}) == "0");
  CHECK(set_in({{"NCCL_GRAPH_REGISTER", "1"}}) == "1");
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

TEST_CASE("nccl environment: a free port of the loopback interface is found") {
  CHECK(FreeLoopbackPort() != 0);
}

}  // namespace
}  // namespace ddp::internal
