// Whether a worker that died by a SIGKILL which ddprun did not send was killed by the kernel's OOM
// killer.
#ifndef DDPRUN_LAUNCHER_STATUS_OOM_VERDICT_H_
#define DDPRUN_LAUNCHER_STATUS_OOM_VERDICT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/kernel_log.h"
#include "launcher/status/memory_facts.h"
#include "launcher/status/oom_lines.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// What is known after a death. Evidence is the kernel's word and nothing else: a worker that died
// while memory was short may have been killed by anybody.
struct OomEvidence {
  MemoryFacts now;
  std::optional<int64_t> oom_kills_before;
  std::vector<OomKill> log;  // since the workers' start; empty as well where it may not be read
};

// Pure: "killed by the OOM killer, limit 64 GiB, peak 63.9 GiB", or none without evidence.
std::optional<std::string> OomVerdict(const OomEvidence& evidence, int pid);

// As it was when the workers started. Copies read on in the same log, so they are used by one
// thread at a time.
struct OomBaseline {
  MemoryPlaces places;
  std::optional<int64_t> oom_kills;
  std::shared_ptr<KernelLog> log;  // null: it may not be read, or its pids are not ours
};

// For a FileThread, before the first worker is started: 0.2 ms.
OomBaseline ReadOomBaseline(const MemoryPlaces& places = {});

// For a FileThread, after the death of the worker `pid`. The kernel counts before it kills but
// writes its log afterwards: `limit` bounds the wait for that.
std::optional<std::string> ExplainKill(const OomBaseline& baseline, int pid,
                                       Duration limit = std::chrono::milliseconds(200));

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_OOM_VERDICT_H_
