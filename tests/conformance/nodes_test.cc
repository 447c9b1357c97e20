// Several agents: they come, go, are killed.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"

namespace ddprun::testing {
namespace {

// Nodes that meet at an endpoint of the run's own. torchrun takes 15 s to miss a node that was
// killed; told to be quicker it misses live ones on a loaded machine.
std::vector<std::string> Meeting(const std::string& nodes, std::vector<std::string> more = {}) {
  std::vector<std::string> options = {"--nnodes=" + nodes, "--rdzv_backend=c10d", "--rdzv_id=job1",
                                      "--rdzv_endpoint=localhost:{port}",
                                      "--rdzv_conf=last_call_timeout=15,join_timeout=120"};
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// With its own store for each round: torchrun 2.13 hands rank 0's address to a node that joins a
// later round only so (a second node, or one in a lost one's place, waits for it in vain
// otherwise).
const std::map<std::string, std::string> kWorkersHost = {
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}};

TEST_CASE("conformance: two agents on one host") {
  Compare({.name = "two_agents",
           .options = Meeting("2", {"--nproc_per_node=4"}),
           .nodes = {{}, {}},
           .command = {"{programs}/touch.py"}});
}

TEST_CASE("conformance: one agent of at most two starts after the last call") {
  Compare({.name = "last_call",
           .options = {"--nnodes=1:2", "--nproc_per_node=2", "--rdzv_backend=c10d",
                       "--rdzv_endpoint=localhost:{port}", "--rdzv_id=job1",
                       "--rdzv_conf='join_timeout=60,last_call_timeout=1,timeout=60'"},
           .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: nodes that fail do not wait for each other's end") {
  Compare({.name = "no_exit_barrier",
           .options = Meeting("2", {"--no_python"}),
           .nodes = {{}, {}},
           .command = {"{toy}", "touch:up{rank}", "until:up0", "until:up1", "exit:3"},
           .has_codes = true});
}

TEST_CASE("conformance: nodes may end with success at different times") {
  Compare({.name = "drift",
           .options = Meeting("2", {"--no_python"}),
           .nodes = {{}, {}},
           .command = {"{toy}", "touch:up{rank}", "exit:0@0", "until:go"},
           .during = [](Run& run) {
             run.AwaitFile("up0");
             run.AwaitFile("up1");
             run.Touch("go");
           }});
}

TEST_CASE("conformance: a second node makes the first start its workers anew") {
  Compare({.name = "scale_up",
           .options = Meeting("1:2", {"--rdzv_conf=last_call_timeout=1,join_timeout=120"}),
           .command = {"{programs}/scale.py", "2"},
           .env = kWorkersHost,
           .during = [](Run& run) {
             run.AwaitFile("up.1.0");
             run.StartNode({});
           }});
}

// The second agent is started when the first hosts the rendezvous.
void AddNode(Run& run, const std::vector<std::string>& options = {}) {
  run.AwaitPort();
  run.StartNode(options);
}

TEST_CASE("conformance: an agent that is killed and started again") {
  Compare({.name = "node_again",
           .options = Meeting("2", {"--max_restarts=2", "--no_python"}),
           .command = {"{toy}", "touch:up{rank}", "until:go"},
           .env = kWorkersHost,
           .during = [](Run& run) {
             AddNode(run);
             run.AwaitFile("up0");
             run.AwaitFile("up1");
             run.Signal(1, SIGKILL);
             run.Remove("up0");
             run.Remove("up1");
             run.StartNode({});
             run.AwaitFile("up0");
             run.AwaitFile("up1");
             run.Touch("go");
           }});
}

// In which the second of at most two nodes has to come, on a machine that is busy as well. torchrun
// waits for as long when one of them is lost.
constexpr char kLongLastCall[] = "--rdzv_conf=last_call_timeout=45,join_timeout=120";

// Two of at most two nodes, of which the second is ended. The first one's workers then fail, as
// they would in a collective, because torchrun's agent does not notice; the restarted ones are
// alone.
void LoseNode(Run& run, const std::vector<std::string>& options, int signal) {
  AddNode(run, options);
  run.AwaitFile("up.2.0");
  run.AwaitFile("up.2.1");
  run.Signal(1, signal);
  run.node(1).Wait();
  run.Touch("fail");
}

TEST_CASE("conformance: one of at most two agents is killed, the other goes on as rank 0") {
  // torchrun gives rank 0 to the lowest address.
  Compare({.name = "node_lost",
           .options = Meeting("1:2", {kLongLastCall, "--max_restarts=1"}),
           .nodes = {{"--local_addr=localhost"}},
           .command = {"{programs}/scale.py", "1"},
           .env = kWorkersHost,
           .during = [](Run& run) { LoseNode(run, {"--local_addr=127.0.0.1"}, SIGKILL); }});
}

TEST_CASE("conformance: a signal to one agent leaves the rendezvous open for the other") {
  Compare({.name = "node_stopped",
           .options = Meeting("1:2", {kLongLastCall, "--max_restarts=1"}),
           .command = {"{programs}/scale.py", "1"},
           .env = kWorkersHost,
           .during = [](Run& run) { LoseNode(run, {}, SIGTERM); }});
}

// torchrun says it only when asked to (TORCH_LOGS).
void AwaitSpare(Run& run, int index) {
  run.AwaitErr(index, "to the redundancy list of round", "spare");
}

TEST_CASE("conformance: a node above the number is a spare, which takes a lost one's place") {
  Compare({.name = "spare_promoted",
           .options = Meeting("2", {"--max_restarts=1", "--no_python"}),
           .command = {"{toy}", "touch:up{rank}", "until:go"},
           .env = {{"TORCH_LOGS", "+distributed"}, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}},
           .during = [](Run& run) {
             AddNode(run);
             run.AwaitFile("up0");
             run.AwaitFile("up1");
             run.StartNode({});
             AwaitSpare(run, 2);
             run.Remove("up0");
             run.Remove("up1");
             run.Signal(1, SIGKILL);
             run.AwaitFile("up0");
             run.AwaitFile("up1");
             run.Touch("go");
           }});
}

TEST_CASE("conformance: a spare node ends when the job is done") {
  Compare({.name = "spare_ends",
           .options = Meeting("1", {"--no_python"}),
           .command = {"{toy}", "touch:up", "until:go"},
           .env = {{"TORCH_LOGS", "+distributed"}},
           .during = [](Run& run) {
             run.AwaitFile("up");
             run.StartNode({});
             AwaitSpare(run, 1);
             run.Touch("go");
           }});
}

}  // namespace
}  // namespace ddprun::testing
