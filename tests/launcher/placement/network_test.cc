#include "launcher/placement/network.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace ddprun::launcher {
namespace {

using rendezvous::Resolution;
using Variables = std::vector<std::string>;

rendezvous::Assignment Round(int node_count) {
  rendezvous::Assignment assignment;
  assignment.node_count = node_count;
  assignment.master_addr = "127.0.0.1";
  return assignment;
}

TEST_CASE(
    "network: names are asked for only where a round has several nodes and Gloo no variable") {
  std::atomic<int> questions = 0;
  GlooInterface gloo({.resolve =
                          [&](const std::string&, uint16_t) {
                            ++questions;
                            return Resolution();
                          }},
                     [](const std::string&) {});
  CHECK(gloo.AddTo({"A=1"}, Round(1)) == Variables{"A=1"});
  const Variables chosen = {"GLOO_SOCKET_IFNAME=eth7"};
  CHECK(gloo.AddTo(chosen, Round(2)) == chosen);
  CHECK(questions == 0);
  // An empty one is none to Gloo.
  gloo.AddTo({"GLOO_SOCKET_IFNAME="}, Round(2));
  CHECK(questions == 2);
  gloo.AddTo({}, Round(2));  // the machine's own name once
  CHECK(questions == 3);
}

TEST_CASE("network: nodes on one machine, which meet on loopback, need nothing") {
  int said = 0;
  GlooInterface gloo({}, [&](const std::string&) { ++said; });
  CHECK(gloo.AddTo({"A=1"}, Round(2)) == Variables{"A=1"});
  CHECK(said == 0);
}

TEST_CASE("network: a name server that does not answer holds nobody up for long") {
  // Outlives the case: the threads that ask hang in it.
  const auto never = std::make_shared<std::promise<void>>();
  const std::shared_future<void> answer = never->get_future().share();
  std::string said;
  {
    GlooInterface gloo({.resolve =
                            [answer](const std::string&, uint16_t) {
                              answer.wait();
                              return Resolution();
                            },
                        .patience = std::chrono::milliseconds(1)},
                       [&](const std::string& line) { said = line; });
    CHECK(gloo.AddTo({"A=1"}, Round(2)) == Variables{"A=1"});
  }
  CHECK(said.empty());
  never->set_value();
}

}  // namespace
}  // namespace ddprun::launcher
