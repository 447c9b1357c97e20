// How far a program says it is, as one word of memory that it shares with its agent. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_PROGRESS_WORD_H_
#define DDPRUN_WORKER_RUNTIME_PROGRESS_WORD_H_

#include <cstddef>
#include <cstdint>

namespace ddp::internal {

// Where the word lies in the page behind kProgressFileVar (stop_flag.h).
inline constexpr size_t kProgressOffset = 8;

// A share of the work: `done` of `all` steps, in units that leave both 32 bits. Nothing was said
// where `all` is 0.
struct ProgressShare {
  uint32_t done = 0;
  uint32_t all = 0;

  friend bool operator==(const ProgressShare&, const ProgressShare&) = default;
};

// One word, so that no reader sees a half of it, whenever its writer dies. `done` is taken as 0 to
// `all`; 0, which says nothing, where `all` is not above 0.
uint64_t PackProgress(int64_t done, int64_t all);
ProgressShare UnpackProgress(uint64_t word);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_PROGRESS_WORD_H_
