// A time in a sentence. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_MILLISECONDS_TEXT_H_
#define DDPRUN_WORKER_RUNTIME_MILLISECONDS_TEXT_H_

#include <string>

#include "absl/strings/str_format.h"

namespace ddp::internal {

// "12.30 ms"; "<0.01 ms" for what "0.00 ms" would make nothing of, "0 ms" for nothing.
inline std::string MillisecondsText(double ms) {
  return ms <= 0 ? "0 ms" : ms < 0.005 ? "<0.01 ms" : absl::StrFormat("%.2f ms", ms);
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_MILLISECONDS_TEXT_H_
