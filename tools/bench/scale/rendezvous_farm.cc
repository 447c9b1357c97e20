// A coordinator and its agents as the product's own client makes them, over loopback, without
// workers. Two processes, so that it is known who pays:
//
//   rendezvous_farm coordinator NODES [PORT]
//   rendezvous_farm agents PORT NODES RATE    all of the job's agents, in one process, which start
//                                             so many a second (0: all at once)
//
// Each prints a line of JSON when it is ready, and one for each line of its stdin, until that ends:
//
//   use       processor time so far; memory, now and at most since this was asked last; descriptors
//   fail      a worker of one agent fails: until all agents are told to stop, and, as each joins
//             again at once, until all have their place in the next round           (agents)
//   wait S    S seconds pass; what was heard meanwhile                             (agents)
//   note      what is heard from now on is of "back" and "stay"                    (agents)
//   back      until all agents have lost the coordinator and are back at one       (agents)
//   stay S    S seconds pass; what was heard since "note", and in which round an agent is (agents)
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/connect.h"
#include "rendezvous/server/coordinator.h"
#include "tools/bench/farm/part.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;  // of its words half are used here

constexpr std::chrono::seconds kPatience{180};
constexpr int kRestarts = 1000;
// PR_FUTEX_HASH and PR_FUTEX_HASH_SET_SLOTS of <linux/prctl.h>, which may be older.
constexpr int kFutexHash = 78, kSetSlots = 1;

int Descriptors() {
  int count = -3;  // ".", ".." and the directory's own
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

void PrintUse() {
  std::printf(
      R"({"cpu_ms": %f, "rss_kib": %ld, "peak_kib": %ld, "threads": %ld, "descriptors": %d})"
      "\n",
      CpuTime_ms(), FromStatus("VmRSS"), FromStatus("VmHWM"), FromStatus("Threads"), Descriptors());
  BeginPeakAnew();
}

// As long as a job's own are by default.
Policy JobPolicy(int nodes) {
  return {.run_id = "farm", .min_nodes = nodes, .max_nodes = nodes, .max_restarts = kRestarts};
}

void RunCoordinator(int nodes, uint16_t port) {
  Coordinator::Options options;
  options.policy = JobPolicy(nodes);
  options.is_apart = true;
  options.listen = {.host = "127.0.0.1", .port = port};
  auto coordinator = Coordinator::Start(std::move(options), SteadyClock());
  if (!coordinator.ok()) Fail(std::string(coordinator.status().message()));
  std::printf("{\"port\": %d}\n", (*coordinator)->port());
  Obey([](const std::string&, int) { PrintUse(); });
}

// What all agents have heard in a phase.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  TimePoint began;
  std::vector<double> drained_ms, assigned_ms, restored_ms;
  int64_t messages = 0;  // events that the coordinator's messages became, without beats
  int64_t lost = 0;

  void BeginAnew() {
    const std::lock_guard lock(mutex);
    began = SteadyNow();
    drained_ms.clear();
    assigned_ms.clear();
    restored_ms.clear();
    messages = lost = 0;
  }
  double Now_ms() const {
    return std::chrono::duration<double, std::milli>(SteadyNow() - began).count();
  }
  void Await(const char* what, const std::vector<double>& times, size_t count) {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kPatience, [&] { return times.size() == count; })) return;
    Fail("no end of " + std::string(what) + ": " + std::to_string(times.size()) + " of " +
         std::to_string(count) + ", contact lost " + std::to_string(lost) + " times");
  }
};

class Agent {
 public:
  Agent(uint16_t port, int nodes, int number, Heard& heard) : heard_(heard) {
    RendezvousOptions options;
    options.mode = ContactOptions::Mode::kDynamic;
    options.policy = JobPolicy(nodes);
    options.endpoint_host = "127.0.0.1";
    options.endpoint_port = port;
    options.is_host = false;
    const std::string id = "node-" + std::to_string(number);
    node_ = {.id = NodeId{id}, .host = id, .local_world_size = 8, .store_port = 1};
    client_ = ConnectRendezvous(
        std::move(options),
        [this](RendezvousEvent event) { std::visit([this](auto& e) { Hear(e); }, event); },
        SteadyClock());
    client_->Join(node_);
  }

  // REQUIRES: a place was heard of, and none is under way.
  Round round() const { return place_.round; }
  void FailWorker() {
    FailureReport report{.node = node_.id, .host = node_.host, .rank = place_.first_rank};
    client_->ReportFailed(place_.round, report, SteadyNow());
    client_->Join(node_);  // its workers are gone
  }

 private:
  template <typename Any>
  void Hear(Any&) {}
  void Hear(RendezvousFailed& failed) { Fail(failed.message); }
  void Hear(Waiting&) { Count(nullptr); }
  void Hear(ContactLost&) {
    const std::lock_guard lock(heard_.mutex);
    ++heard_.lost;
  }
  void Hear(ContactRestored&) { Count(&heard_.restored_ms); }
  void Hear(Assigned& assigned) {
    place_ = assigned.assignment;
    Count(&heard_.assigned_ms);
  }
  void Hear(Drained&) {
    Count(&heard_.drained_ms);
    client_->Join(node_);
  }
  void Count(std::vector<double>* times) {
    const std::lock_guard lock(heard_.mutex);
    ++heard_.messages;
    if (times == nullptr) return;
    times->push_back(heard_.Now_ms());
    heard_.changed.notify_all();
  }

  Heard& heard_;
  NodeInfo node_;
  Assignment place_;
  std::unique_ptr<RendezvousClient> client_;
};

void PrintTimes(const char* name, std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  const size_t last = times.size() - 1;
  std::printf(R"("%s_p50_ms": %.1f, "%s_p99_ms": %.1f, "%s_last_ms": %.1f, )", name,
              times[last / 2], name, times[last * 99 / 100], name, times[last]);
}

// `round`: that in which an agent is.
void PrintPhase(Heard& heard, size_t agents, Round round) {
  const std::lock_guard lock(heard.mutex);
  std::printf("{\"round\": %lu, \"drained\": %zu, ", round.value, heard.drained_ms.size());
  if (!heard.drained_ms.empty()) PrintTimes("told", heard.drained_ms);
  if (!heard.assigned_ms.empty()) PrintTimes("placed", heard.assigned_ms);
  if (!heard.restored_ms.empty()) PrintTimes("back", heard.restored_ms);
  std::printf("\"messages_an_agent\": %.3f, \"lost\": %ld}\n",
              static_cast<double>(heard.messages) / static_cast<double>(agents), heard.lost);
}

void RunAgents(uint16_t port, int nodes, int per_second) {
  const auto count = static_cast<size_t>(nodes);
  Heard heard;
  heard.BeginAnew();
  std::vector<std::unique_ptr<Agent>> agents;
  for (int i = 0; i < nodes; ++i) {
    agents.push_back(std::make_unique<Agent>(port, nodes, i, heard));
    if (per_second == 0) continue;
    const TimePoint next = heard.began + Duration(std::chrono::seconds(i)) / per_second;
    std::this_thread::sleep_for(std::max(Duration{0}, Duration(next - SteadyNow())));
  }
  const double started_ms = heard.Now_ms();
  heard.Await("the first round", heard.assigned_ms, count);
  std::fprintf(stderr, "rendezvous_farm: %d clients were made in %.0f ms\n", nodes, started_ms);
  PrintPhase(heard, count, agents[0]->round());
  Obey([&](const std::string& verb, int number) {
    if (verb == "use") return PrintUse();
    if (verb != "back" && verb != "stay") heard.BeginAnew();
    if (verb == "back") {
      heard.Await("the time without a coordinator", heard.restored_ms, count);
    } else if (verb == "fail") {
      agents[count / 2]->FailWorker();
      heard.Await("the next round", heard.assigned_ms, count);
    } else if (verb == "wait" || verb == "stay") {
      std::this_thread::sleep_for(std::chrono::seconds(number));
    }
    PrintPhase(heard, count, agents[0]->round());
  });
  std::fflush(stdout);
  std::_Exit(0);  // a farm that takes leave takes seconds, and is not measured
}

}  // namespace
}  // namespace ddprun::bench

int main(int argc, char** argv) {
  using namespace ddprun::bench;
  const std::string part = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return i < argc ? std::atoi(argv[i]) : 0; };
  // From Linux 6.17 on the waiting threads of a process share a few queues a processor, too few for
  // two threads an agent. An older kernel says no, and has one table for all.
  prctl(kFutexHash, kSetSlots, 16384, 0);
  // A connection costs the coordinator three descriptors and an agent about as many. Root may have
  // more than the limit allows.
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  for (const rlim_t wanted : {rlim_t{65536}, descriptors.rlim_max}) {
    const rlimit more{wanted, std::max(wanted, descriptors.rlim_max)};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) break;
  }
  if (part == "coordinator" && (argc == 3 || argc == 4)) {
    RunCoordinator(number(2), static_cast<uint16_t>(number(3)));
  } else if (part == "agents" && argc == 5) {
    RunAgents(static_cast<uint16_t>(number(2)), number(3), number(4));
  } else {
    Fail("see the beginning of rendezvous_farm.cc");
  }
  return 0;
}
