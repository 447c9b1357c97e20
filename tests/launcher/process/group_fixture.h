// A worker group of toy workers, what it reported, and what they printed.
#ifndef DDPRUN_TESTS_LAUNCHER_PROCESS_GROUP_FIXTURE_H_
#define DDPRUN_TESTS_LAUNCHER_PROCESS_GROUP_FIXTURE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "launcher/process/leftovers.h"
#include "launcher/process/worker_group.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::testing {

struct GroupFixture {
  explicit GroupFixture(bool use_pidfd = true, bool is_spawn_held = false,
                        Duration leftover_grace = std::chrono::seconds(20),
                        const launcher::ProcessBaseline& baseline = TestBaseline(),
                        const launcher::JobCgroup* cgroup = nullptr,
                        Duration slow_start_after = std::chrono::seconds(30))
      : mark(launcher::NewJobMark()),
        group(io,
              {.baseline = baseline,
               .job_mark = mark,
               .cgroup = cgroup,
               .leftover_grace = leftover_grace,
               .use_pidfd = use_pidfd,
               .slow_start_after = slow_start_after,
               .is_spawn_held_for_test = [is_spawn_held] { return is_spawn_held; }},
              [this](const launcher::WorkerEvent& event) {
                events.push_back(event);
                if (on_event) on_event(event);
              }) {}

  launcher::WorkerSpec Toy(int local_rank, std::vector<std::string> verbs) {
    launcher::WorkerSpec spec;
    spec.local_rank = local_rank;
    spec.rank = 10 + local_rank;
    spec.process.executable = ToyWorker();
    spec.process.argv = {"toy_worker"};
    for (std::string& verb : verbs) spec.process.argv.push_back(std::move(verb));
    spec.process.env = TestEnvironment({std::string(launcher::kJobMarkVariable) + "=" + mark});
    spec.process.stdout_fd = output.write_end();
    return spec;
  }

  template <typename Event>
  std::vector<Event> All() const {
    std::vector<Event> found;
    for (const launcher::WorkerEvent& event : events) {
      if (const Event* match = std::get_if<Event>(&event)) found.push_back(*match);
    }
    return found;
  }
  bool RunToEnd() {
    return RunUntil(io, [this] { return !All<launcher::GroupEmpty>().empty(); });
  }
  bool RunUntilStarted(size_t count) {
    return RunUntil(io, [&] { return All<launcher::WorkerStarted>().size() == count; });
  }

  boost::asio::io_context io;
  std::string mark;
  CapturePipe output;
  std::vector<launcher::WorkerEvent> events;
  std::function<void(const launcher::WorkerEvent&)> on_event;
  launcher::WorkerGroup group;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PROCESS_GROUP_FIXTURE_H_
