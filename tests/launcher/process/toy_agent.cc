// An agent for the guardian's tests: `toy_agent WORKER [-- WORKER]...`, each WORKER a list of
// toy_worker verbs. Prints "mark M", "guardian PID" and "started PID" lines; ends when its workers
// have.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/process/guardian.h"
#include "launcher/process/leftovers.h"
#include "launcher/process/process_baseline.h"
#include "launcher/process/worker_group.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::launcher {
namespace {

std::vector<WorkerSpec> ParseWorkers(int argc, char** argv, const std::string& mark) {
  std::vector<WorkerSpec> specs;
  for (int i = 1; i < argc; ++i) {
    if (i == 1 || std::string(argv[i]) == "--") {
      WorkerSpec spec;
      spec.local_rank = spec.rank = static_cast<int>(specs.size());
      spec.process.executable = testing::ToyWorker();
      spec.process.argv = {"toy_worker"};
      spec.process.env = testing::TestEnvironment({std::string(kJobMarkVariable) + "=" + mark});
      specs.push_back(std::move(spec));
      if (i != 1) continue;
    }
    specs.back().process.argv.push_back(argv[i]);
  }
  return specs;
}

int Main(int argc, char** argv) {
  const ProcessBaseline baseline = RecordBaseline();
  if (!PrepareAgentProcess(baseline).ok()) return 1;
  const std::string mark = NewJobMark();
  boost::asio::io_context io;
  auto guardian = Guardian::Start(mark);
  if (!guardian.ok()) return 1;
  std::printf("guardian %d\n", (*guardian)->pid());
  (*guardian)->Watch(io, [&](const std::string& text) {
    std::printf("restarted %d: %s\n", (*guardian)->pid(), text.c_str());
    std::fflush(stdout);
  });
  bool is_done = false;
  WorkerGroup group(io,
                    {.baseline = baseline,
                     .job_mark = mark,
                     .guardian = guardian->get(),
                     .cgroup = (*guardian)->cgroup()},
                    [&](const WorkerEvent& event) {
                      if (const auto* started = std::get_if<WorkerStarted>(&event)) {
                        std::printf("started %d\n", started->pid);
                      }
                      if (std::holds_alternative<GroupEmpty>(event)) is_done = true;
                      std::fflush(stdout);
                    });
  group.Start(ParseWorkers(argc, argv, mark));
  while (!is_done) io.run_one();
  return KillLeftovers(mark, (*guardian)->cgroup(), std::chrono::seconds(10)) ? 0 : 1;
}

}  // namespace
}  // namespace ddprun::launcher

int main(int argc, char** argv) { return ddprun::launcher::Main(argc, argv); }
