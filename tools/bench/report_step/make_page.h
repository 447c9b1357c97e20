// A page of counters as an agent makes it.
#ifndef DDPRUN_TOOLS_BENCH_REPORT_STEP_MAKE_PAGE_H_
#define DDPRUN_TOOLS_BENCH_REPORT_STEP_MAKE_PAGE_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "worker_runtime/counters_page.h"

namespace ddprun::bench {

// For this process, or the program that it becomes. False: it cannot be made.
inline bool MakePage() {
  const int page = memfd_create("counters", MFD_ALLOW_SEALING);
  const uint64_t words[] = {ddp::internal::kCountersMagic, ddp::internal::kCountersVersion};
  return page >= 0 && ftruncate(page, ddp::internal::kCountersBytes) == 0 &&
         pwrite(page, words, sizeof words, 0) == sizeof words &&
         fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
         setenv(ddp::internal::kCountersVar, std::to_string(page).c_str(), 1) == 0;
}

}  // namespace ddprun::bench

#endif  // DDPRUN_TOOLS_BENCH_REPORT_STEP_MAKE_PAGE_H_
