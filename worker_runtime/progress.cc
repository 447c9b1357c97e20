#include "ddp/progress.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker_runtime/counters.h"
#include "worker_runtime/env_contract.h"
#include "worker_runtime/progress_word.h"
#include "worker_runtime/stop_flag.h"

namespace ddp::internal {
namespace {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

// The page in which this process tells; null: nobody wants to know, or it cannot be used.
StopPage* MapPage() {
  const char* path = std::getenv(kProgressFileVar);
  if (path == nullptr || *path == '\0') return nullptr;
  StopPage* page = nullptr;
  const std::string why = MapStopPage(path, &page);
  if (!why.empty()) {
    std::fprintf(stderr, "%s\n",
                 absl::StrCat("ddp: map the file \"", path, "\" of ", kProgressFileVar, ": ", why,
                              "; the launcher is not told of this process's progress")
                     .c_str());
  }
  return page;
}

void Report(int64_t done, int64_t all) {
  static StopPage* const page = MapPage();
  const uint64_t word = PackProgress(done, all);
  if (page == nullptr || word == 0) return;
  std::atomic_ref<uint64_t>(page->progress).store(word, std::memory_order_relaxed);
}

}  // namespace
}  // namespace ddp::internal

extern "C" void ddp_report_progress(long long steps_done, long long steps_in_all) {
  ddp::internal::Report(steps_done, steps_in_all);
}

extern "C" void ddp_report_step(long long step, long long samples) {
  ddp::internal::Counters* counters = ddp::internal::Counters::OfThisProcess();
  if (counters == nullptr) return;
  counters->SetProgramTells();
  counters->ReportStep(step, samples);
}

extern "C" void ddp_report_phase(int phase) {
  ddp::internal::Counters* counters = ddp::internal::Counters::OfThisProcess();
  if (counters == nullptr || phase < DDP_PHASE_START || phase > DDP_PHASE_CHECKPOINT) return;
  counters->SetPhase(static_cast<ddp::Phase>(phase));
}
