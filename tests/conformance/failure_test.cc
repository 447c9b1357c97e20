// Workers that fail, are killed, end early; signals.
#include <signal.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"
#include "tests/support/files.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

TEST_CASE("conformance: a worker that fails ends the job") {
  Compare({.name = "fail",
           .options = {"--standalone", "--nproc_per_node=3", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "until:up0", "until:up1", "until:up2", "exit:7@1",
                       "wait"},
           .has_codes = true});
}

TEST_CASE("conformance: a worker that is killed ends the job") {
  Compare({.name = "killed",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "die:9@1", "wait"},
           .has_codes = true});
}

TEST_CASE("conformance: an exception in Python ends the job") {
  Compare({.name = "exception",
           .options = {"--standalone", "--nproc_per_node=2"},
           .command = {"{programs}/raise.py"},
           .has_codes = true});
}

TEST_CASE("conformance: a program that is not there") {
  Compare({.name = "no_program",
           .options = {"--standalone", "--no_python"},
           .command = {"{dir}/nothing"},
           .has_codes = true});
}

TEST_CASE("conformance: a script that is not there") {
  Compare({.name = "no_script",
           .options = {"--standalone"},
           .command = {"{dir}/nothing.py"},
           .has_codes = true});
}

TEST_CASE("conformance: rank 1 kills itself at restart 0, and the restarted group succeeds") {
  Compare({.name = "restart",
           .options = {"--standalone", "--nproc_per_node=2", "--max_restarts=1", "--no_python"},
           .command = {"{toy}", "print:rank {rank} restart {restart}", "touch:up{rank}.{restart}",
                       "until:up0.0", "die:9@1#0", "wait@0#0"}});
}

TEST_CASE("conformance: the odd ranks fail until no restart is left") {
  Compare({.name = "bipolar",
           .options = {"--standalone", "--nproc_per_node=4", "--max_restarts=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}.{restart}", "until:up0.{restart}",
                       "until:up1.{restart}", "until:up2.{restart}", "until:up3.{restart}",
                       "exit:1@1", "exit:1@3"}});
}

TEST_CASE("conformance: a rank that ends with 0 early lets the others go on") {
  Compare({.name = "early",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:early@0", "exit:0@0", "until:go", "print:went on"},
           .during = [](Run& run) {
             run.AwaitFile("early");
             run.Touch("go");
           }});
}

// Waits for the first agent to wait for its workers. A signal in the midst of a start makes
// torchrun leave the worker behind that it is just starting.
void AwaitRest(Run& run) {
  const std::string file = "/proc/" + std::to_string(run.node(0).pid()) + "/syscall";
  CHECK(Eventually([&file] {
    const std::string text = ReadFile(file);  // the number of the call, first of all
    const int call = std::atoi(text.c_str());
    return call == SYS_clock_nanosleep || call == SYS_epoll_wait;
  }));
}

void StopBy(Run& run, int signal) {
  run.AwaitFile("up0");
  run.AwaitFile("up1");
  AwaitRest(run);
  run.Signal(0, signal);
}

TEST_CASE("conformance: SIGTERM ends the job and its workers") {
  Compare({.name = "sigterm",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "wait"},
           .during = [](Run& run) { StopBy(run, SIGTERM); },
           .has_codes = true});
}

TEST_CASE("conformance: SIGINT ends the job and its workers") {
  Compare({.name = "sigint",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "wait"},
           .during = [](Run& run) { StopBy(run, SIGINT); },
           .has_codes = true});
}

TEST_CASE("conformance: workers deaf to SIGTERM are killed after --shutdown_timeout") {
  Compare({.name = "shutdown_timeout",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python", "--shutdown_timeout=1"},
           .command = {"{toy}", "ignore:15", "touch:up{rank}", "wait"},
           .during = [](Run& run) { StopBy(run, SIGTERM); }});
}

TEST_CASE("conformance: SIGKILL of the launcher") {
  Compare({.name = "sigkill",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "wait"},
           .during = [](Run& run) { StopBy(run, SIGKILL); }});
}

TEST_CASE("conformance: SIGHUP under nohup") {
  Compare({.name = "nohup",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python"},
           .command = {"{toy}", "touch:up{rank}", "until:go"},
           .prefix = {"/usr/bin/nohup"},
           .during = [](Run& run) {
             StopBy(run, SIGHUP);
             if (run.launcher() == Launcher::kTorchrun) run.node(0).Wait();
             run.Touch("go");
           }});
}

TEST_CASE("conformance: a signal before the other node has come") {
  Compare({.name = "early_signal",
           .options = {"--nnodes=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:{port}",
                       "--no_python"},
           .command = {"{toy}", "touch:up"},
           .during = [](Run& run) {
             // It listens: so it has installed what it installs.
             run.AwaitPort();
             run.Signal(0, SIGTERM);
           }});
}

}  // namespace
}  // namespace ddprun::testing
