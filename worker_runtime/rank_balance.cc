#include "ddp/rank_balance.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "rendezvous/base/fnv1a.h"
#include "worker_runtime/comm/device_timer.h"
#include "worker_runtime/comm/host_key.h"

namespace ddp {
namespace {

using std::chrono::nanoseconds;

// What a rank tells the others. It travels as int64.
struct Word {
  double step_ms = 0;
  double exposed_ms = 0;  // -1: not known
  double step_wait_ms = -1;
  double communication_wait_ms = -1;
  double cores_used = 0;  // CPU time by wall time
  double gpu_utilisation = -1;
  uint64_t host = 0;
  cpu_set_t cpus{};  // empty where the kernel does not tell: more than 1024 of them
};
constexpr size_t kWordFields = sizeof(Word) / sizeof(int64_t);
static_assert(sizeof(Word) % sizeof(int64_t) == 0);

double Milliseconds(nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// The second number of a thread's schedstat: nanoseconds on a run queue. For the calling thread and
// for the others.
bool AddWaits(nanoseconds& mine, nanoseconds& others) {
  const std::string caller = std::to_string(gettid());
  std::error_code error;
  bool is_known = false;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end;
       at.increment(error)) {
    std::ifstream file(at->path() / "schedstat");
    int64_t ran = 0, waited = 0;
    if (!(file >> ran >> waited)) continue;  // the thread has ended, or the kernel has no such file
    (at->path().filename() == caller ? mine : others) += nanoseconds(waited);
    is_known = true;
  }
  return is_known;
}

// On how many hosts the ranks are, which cores a rank shares and with how many: those of all ranks
// of its host that may use one of its own. Ranks that are bound to cores of their own share none.
void CountHostsAndCores(const std::vector<Word>& words, std::vector<RankSteps>& ranks) {
  std::set<uint64_t> hosts;
  for (const Word& word : words) hosts.insert(word.host);
  for (size_t i = 0; i < words.size(); ++i) {
    cpu_set_t all = words[i].cpus, both;
    int sharing = 0;
    for (const Word& word : words) {
      CPU_AND(&both, &word.cpus, &words[i].cpus);
      if (word.host != words[i].host || CPU_COUNT(&both) == 0) continue;
      CPU_OR(&all, &all, &word.cpus);
      ++sharing;
    }
    ranks[i].cores = CPU_COUNT(&all);
    ranks[i].ranks_on_cores = sharing;
    ranks[i].hosts = static_cast<int>(hosts.size());
    if (ranks[i].cores == 0) continue;
    ranks[i].cpu_utilisation = words[i].cores_used * sharing / ranks[i].cores;
  }
}

}  // namespace

RankBalance::Usage RankBalance::Now() {
  Usage usage;
  usage.wall = std::chrono::steady_clock::now().time_since_epoch();
  timespec cpu{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) {
    usage.cpu = std::chrono::seconds(cpu.tv_sec) + nanoseconds(cpu.tv_nsec);
  }
  usage.knows_waits = AddWaits(usage.step_wait, usage.communication_wait);
  return usage;
}

void RankBalance::Begin() {
  begin_ = Now();
  if (!since_) since_ = std::chrono::system_clock::now();
}

void RankBalance::End() {
  const Usage end = Now();
  sums_.wall += end.wall - begin_.wall;
  sums_.cpu += end.cpu - begin_.cpu;
  sums_.step_wait += end.step_wait - begin_.step_wait;
  // A thread that ended took its part along.
  sums_.communication_wait +=
      std::max(nanoseconds(0), end.communication_wait - begin_.communication_wait);
  sums_.knows_waits = sums_.knows_waits && begin_.knows_waits && end.knows_waits;
}

absl::StatusOr<std::vector<RankSteps>> RankBalance::Gather(const StepMetrics& metrics) {
  Word mine{.step_ms = metrics.step_ms(),
            .exposed_ms = metrics.knows_communication() ? metrics.exposed_ms() : -1};
  if (sums_.knows_waits && metrics.steps() > 0) {
    const double steps = static_cast<double>(metrics.steps());
    mine.step_wait_ms = Milliseconds(sums_.step_wait) / steps;
    mine.communication_wait_ms = Milliseconds(sums_.communication_wait) / steps;
  }
  if (sums_.wall > nanoseconds(0)) {
    mine.cores_used = Milliseconds(sums_.cpu) / Milliseconds(sums_.wall);
  }
  if (internal::DeviceTimer* device = communicator_.device_timer(); device != nullptr && since_) {
    mine.gpu_utilisation = device->UtilisationSince(*since_).value_or(-1);
  }
  const std::string host = internal::HostKey();
  ddprun::Fnv1a hash;
  hash.Add(host.data(), host.size());
  mine.host = hash.value();
  if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0) CPU_ZERO(&mine.cpus);

  Communicator& communicator = communicator_.host();
  std::vector<Word> words(static_cast<size_t>(communicator.world_size()));
  const absl::Status status =
      communicator.AllGather(&mine, words.data(), kWordFields, DType::kInt64)->Wait();
  if (!status.ok()) return status;
  // A rank that does not know its own yet would seem to compute all the time.
  const bool is_known = std::all_of(words.begin(), words.end(),
                                    [](const Word& word) { return word.exposed_ms >= 0; });
  std::vector<RankSteps> ranks;
  for (const Word& word : words) {
    ranks.push_back({.step_ms = word.step_ms,
                     .exposed_ms = is_known ? word.exposed_ms : 0,
                     .step_wait_ms = word.step_wait_ms,
                     .communication_wait_ms = word.communication_wait_ms,
                     .gpu_utilisation = word.gpu_utilisation});
  }
  CountHostsAndCores(words, ranks);
  return ranks;
}

}  // namespace ddp
