// How a program is started, by option: as a module, by its path inside the worker, and options that
// only have to be taken.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"

namespace ddprun::testing {
namespace {

TEST_CASE("conformance: a module") {
  Compare({.name = "module",
           .options = {"--standalone", "--nproc_per_node=2", "-m"},
           .command = {"env", "--mine", "-m"},
           .env = {{"PYTHONPATH", "{programs}"}}});
}

TEST_CASE("conformance: a script by its path") {
  Compare({.name = "run_path",
           .options = {"--standalone", "--nproc_per_node=2", "--run_path"},
           .command = {"{programs}/touch.py"}});
}

TEST_CASE("conformance: a script by its path that ends with 0 by itself") {
  Compare({.name = "run_path_exit",
           .options = {"--standalone", "--nproc_per_node=1", "--run-path", "--start-method=fork"},
           .command = {"{programs}/leave.py", "0"}});
}

TEST_CASE("conformance: a script by its path that fails") {
  Compare({.name = "run_path_fails",
           .options = {"--standalone", "--nproc_per_node=1", "--run-path"},
           .command = {"{programs}/leave.py", "9"}});
}

TEST_CASE("conformance: a signal of --signals_to_handle ends the job") {
  Compare({.name = "signals_to_handle",
           .options = {"--standalone", "--nproc_per_node=2", "--no_python",
                       "--signals_to_handle=SIGTERM,SIGUSR2"},
           .command = {"{toy}", "touch:up{rank}", "wait"},
           .during = [](Run& run) {
             run.AwaitFile("up0");
             run.AwaitFile("up1");
             run.Signal(0, SIGUSR2);
           }});
}

TEST_CASE("conformance: options that are taken and change nothing here") {
  Compare({.name = "inert_options",
           .options = {"--standalone", "--nproc_per_node=2", "--start_method=forkserver",
                       "--event_log_handler=null", "--monitor_interval=0.5",
                       "--signals_to_handle=SIGTERM,SIGNONE", "--local_ranks_filter=0,1"},
           .command = {"{programs}/env.py"}});
}

TEST_CASE("conformance: logs_specs that nobody has defined") {
  Compare({.name = "logs_specs",
           .options = {"--standalone", "--logs_specs=nobody", "--no_python"},
           .command = {"/bin/true"}});
}

TEST_CASE("conformance: a first word that is a command here") {
  Compare({.name = "reserved_word",
           .command = {"token"},
           .prefix = {"/bin/sh", "-c", "echo 'print(\"seen: ran\")' >token; exec \"$@\"", "sh"}});
}

}  // namespace
}  // namespace ddprun::testing
