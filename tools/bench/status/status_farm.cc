// The parts of a job whose status somebody looks at, each a process, so that it is known who pays:
//
//   status_farm coordinator NODES
//   status_farm agents PORT NODES COUNT   that many of the job's agents, in one process
//   status_farm asker PORT NODES          one more, which looks at all: as the agent of rank 0 does
//
// Each prints a line of JSON when it is ready, and one for each line of its stdin, until that ends:
//
//   use      processor time so far; memory, now and at most since this was asked last
//   look     one look at the job                                                  (asker)
//   hang     judges it once more, as if it hung                                   (asker)
//   ask N    N of the agents ask at once; what came until the last was answered   (agents)
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/status/job_judge.h"
#include "launcher/status/job_watch.h"
#include "launcher/status/snapshot_json.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/connect.h"
#include "rendezvous/server/coordinator.h"
#include "tools/bench/farm/part.h"
#include "tools/bench/status/node_view.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;  // of its words half are used here

constexpr std::chrono::seconds kPatience{60};

double MsSince(TimePoint since) {
  return std::chrono::duration<double, std::milli>(SteadyNow() - since).count();
}

// `thread_ms`: of the one thread that counts.
void PrintUse(double thread_ms = 0, int64_t answered = 0) {
  std::printf(R"({"cpu_ms": %f, "thread_ms": %f, "answered": %ld, "rss_kib": %ld, "peak_kib": %ld})"
              "\n",
              CpuTime_ms(), thread_ms, answered, FromStatus("VmRSS"), FromStatus("VmHWM"));
  BeginPeakAnew();
}

Policy JobPolicy(int nodes) {
  Policy policy{.run_id = "bench", .min_nodes = nodes, .max_nodes = nodes};
  policy.evict_after = kPatience;  // this machine may be busy
  return policy;
}

void RunCoordinator(int nodes) {
  std::atomic<bool> is_known = false;
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  Coordinator::Options options;
  options.policy = JobPolicy(nodes);
  options.listen = {.host = "127.0.0.1", .port = 0};
  options.log_step = [&](const std::string&) {  // on its thread, when the first node joins
    if (is_known) return;
    pthread_getcpuclockid(pthread_self(), &clock);
    is_known = true;
  };
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  if (!coordinator.ok()) Fail(std::string(coordinator.status().message()));
  std::printf("{\"port\": %d}\n", (*coordinator)->port());
  Obey([&](const std::string&, int) { PrintUse(is_known ? CpuTime_ms(clock) : 0); });
}

// One agent. What it hears comes on its client's thread.
class Agent {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    int assigned = 0;
    int64_t answered = 0;  // questions
    // Since BeginAnew: own questions, those of them that all nodes have answered, and the bytes.
    int ended = 0, full = 0;
    int64_t bytes = 0;
    int64_t answered_before = 0;

    void BeginAnew() {
      const std::lock_guard lock(mutex);
      ended = full = 0;
      bytes = 0;
      answered_before = answered;
    }
    void Await(const char* what, const std::function<bool()>& is_so) {
      std::unique_lock lock(mutex);
      if (!changed.wait_for(lock, kPatience, is_so)) Fail(std::string("no end: ") + what);
    }
  };

  Agent(uint16_t port, int nodes, const std::string& id, Shared& shared)
      : nodes_(nodes), id_(id), shared_(shared) {
    RendezvousOptions options;
    options.mode = ContactOptions::Mode::kDynamic;
    options.policy = JobPolicy(nodes);
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = port;
    options.is_host = false;
    client_ = ConnectRendezvous(
        std::move(options),
        [this](RendezvousEvent event) { std::visit([this](auto& e) { Hear(e); }, event); },
        SteadyClock());
    NodeInfo node{.id = NodeId{id}, .host = id, .local_world_size = kRanksOfNode};
    node.store_port = 1;  // nobody comes
    client_->Join(node);
  }

  void Ask(uint64_t question) {
    client_->Ask({.id = question, .to = {}, .body = launcher::kPrivateQuestion});
  }
  launcher::NodeView View() { return TrainingNode(place_, id_, 18240 + ++views_); }
  // Where the parts of answers go; else they are only counted.
  void Keep(GiveAnswers* all) { all_ = all; }

 private:
  template <typename Any>
  void Hear(Any&) {}
  void Hear(RendezvousFailed& failed) { Fail(failed.message); }
  void Hear(ContactLost& lost) { Fail(id_ + ": " + lost.reason); }
  void Hear(Assigned& assigned) {
    place_ = assigned.assignment;
    const std::lock_guard lock(shared_.mutex);
    ++shared_.assigned;
    shared_.changed.notify_all();
  }
  void Hear(Asked& asked) {
    client_->Answer(asked.id, RenderNodeJson(View()));
    const std::lock_guard lock(shared_.mutex);
    ++shared_.answered;
  }
  void Hear(Answered& answered) {
    GiveAnswers& part = answered.part;
    const std::lock_guard lock(shared_.mutex);
    for (NodeAnswer& answer : part.answers) {
      ++heard_;
      shared_.bytes += static_cast<int64_t>(answer.body.size());
      if (all_ != nullptr) all_->answers.push_back(std::move(answer));
    }
    if (all_ != nullptr)
      all_->silent.insert(all_->silent.end(), part.silent.begin(), part.silent.end());
    if (!part.is_last) return;
    if (all_ != nullptr) all_->facts = part.facts;
    shared_.full += std::exchange(heard_, 0) == nodes_ ? 1 : 0;
    ++shared_.ended;
    shared_.changed.notify_all();
  }

  const int nodes_;
  const std::string id_;
  Shared& shared_;
  Assignment place_;
  std::atomic<int64_t> views_ = 0;
  GiveAnswers* all_ = nullptr;
  int heard_ = 0;
  std::unique_ptr<RendezvousClient> client_;
};

void RunAgents(uint16_t port, int nodes, int count) {
  Agent::Shared shared;
  std::vector<std::unique_ptr<Agent>> agents;
  for (int i = 0; i < count; ++i) {
    agents.push_back(std::make_unique<Agent>(port, nodes, "gpu-" + std::to_string(i), shared));
  }
  shared.Await("the round", [&] { return shared.assigned == count; });
  std::printf("{\"node_bytes\": %zu}\n", RenderNodeJson(agents.front()->View()).size());
  Obey([&](const std::string& verb, int askers) {
    if (verb != "ask") {
      const std::lock_guard lock(shared.mutex);
      return PrintUse(0, shared.answered);
    }
    const TimePoint began = SteadyNow();
    shared.BeginAnew();
    for (int i = 0; i < askers; ++i) {
      agents[static_cast<size_t>(i % count)]->Ask(static_cast<uint64_t>(i) + 1);
    }
    shared.Await("the answers to all", [&] { return shared.ended == askers; });
    std::printf("{\"ms\": %f, \"full\": %d, \"bytes\": %ld}\n", MsSince(began), shared.full,
                shared.bytes);
  });
  std::fflush(stdout);
  std::_Exit(0);  // a farm that takes leave takes seconds, and is not measured
}

// Looks at all, and does with it what the agent of rank 0 does on its file thread (job_watch.cc
// and, for an open dashboard, control_plane.cc).
class Asker {
 public:
  Asker(uint16_t port, int nodes) : agent_(port, nodes, "asker", shared_) {
    shared_.Await("the round", [&] { return shared_.assigned == 1; });
  }

  void Look() {
    GiveAnswers all;
    agent_.Keep(&all);
    shared_.BeginAnew();
    const TimePoint began = SteadyNow();
    agent_.Ask(++last_id_);
    shared_.Await("the look", [&] { return shared_.ended == 1; });
    // This node is asked like all others, before it is given the answers.
    const bool is_copy = shared_.answered == shared_.answered_before;
    std::printf(R"({"ms": %f, "is_copy": %d, "silent": %zu, "bytes": %ld, )", MsSince(began),
                is_copy ? 1 : 0, all.silent.size(), shared_.bytes);
    job_ = launcher::JobView{.run_id = "bench", .state = "running", .round = 1};
    job_.nodes.push_back(agent_.View());
    Measure("assemble_ms", [&] {
      job_ = AssembleJob(std::move(job_), all, SteadyNow());
      for (const launcher::NodeView& node : job_.nodes) last_words_[node.id] = node;
    });
    Measure("judge_ms", [&] { judge_.Look(SteadyNow(), job_); });
    Show();
    std::printf("\"problems\": %zu}\n", job_.problems.size());
  }

  // The last look as if all ranks but one had been in an all-reduce for five minutes.
  void JudgeHang() {
    std::printf("{");
    for (launcher::NodeView& node : job_.nodes) {
      for (launcher::RankView& rank : node.ranks) {
        rank.step_age_s = 301;
        for (launcher::GroupView& group : rank.groups) group.quiet_s = 301;
        if (rank.rank == 5) continue;
        launcher::GroupView& world = rank.groups.front();
        world.called = world.done + 1;
        world.waiting_s = world.quiet_s = 300;
      }
    }
    Measure("judge_ms", [&] { judge_.Look(SteadyNow(), job_); });
    std::printf("\"problems\": %zu}\n", job_.problems.size());
  }

  void Use() {
    const std::lock_guard lock(shared_.mutex);
    PrintUse(0, shared_.answered);
  }

 private:
  template <typename What>
  void Measure(const char* name, What what) {
    const double start = CpuTime_ms(CLOCK_THREAD_CPUTIME_ID);
    what();
    std::printf("\"%s\": %f, ", name, CpuTime_ms(CLOCK_THREAD_CPUTIME_ID) - start);
  }
  // As rarely as ControlPlane::Publish does.
  void Show() {
    const TimePoint began = SteadyNow();
    if (began < show_again_at_) return;
    std::string text;
    Measure("render_ms", [&] { text = RenderJson(job_); });
    std::printf("\"json_bytes\": %zu, ", text.size());
    const TimePoint now = SteadyNow();
    show_again_at_ = now + 50 * (now - began) - std::chrono::milliseconds(100);
  }

  Agent::Shared shared_;
  Agent agent_;
  uint64_t last_id_ = 0;
  launcher::JobView job_;
  std::map<std::string, launcher::NodeView> last_words_;
  launcher::JobJudge judge_;
  TimePoint show_again_at_{};
};

void RunAsker(uint16_t port, int nodes) {
  Asker asker(port, nodes);
  std::printf("{}\n");
  Obey([&](const std::string& verb, int) {
    if (verb == "look") return asker.Look();
    if (verb == "hang") return asker.JudgeHang();
    asker.Use();
  });
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace
}  // namespace ddprun::bench

int main(int argc, char** argv) {
  using namespace ddprun::bench;
  const std::string part = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return i < argc ? std::atoi(argv[i]) : 0; };
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  const auto port = static_cast<uint16_t>(number(2));
  if (part == "coordinator" && argc == 3) {
    RunCoordinator(number(2));
  } else if (part == "agents" && argc == 5) {
    RunAgents(port, number(3), number(4));
  } else if (part == "asker" && argc == 4) {
    RunAsker(port, number(3));
  } else {
    Fail("see the beginning of status_farm.cc");
  }
  return 0;
}
