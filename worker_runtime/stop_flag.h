// The word of this node's agent to its workers: save and end after your step; and theirs to it.
#ifndef DDPRUN_WORKER_RUNTIME_STOP_FLAG_H_
#define DDPRUN_WORKER_RUNTIME_STOP_FLAG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker_runtime/progress_word.h"

namespace ddp::internal {

// The beginning of the file that kStopFileVar names, and kProgressFileVar for rank 0: one per node,
// mapped by the agent and by its workers and accessed by std::atomic_ref. The rest of its
// kStopPageBytes is zero.
struct StopPage {
  uint32_t is_requested;         // the agent writes 1
  uint32_t is_heard;             // a worker writes 1 when ShouldStop() has returned true to it
  alignas(8) uint64_t progress;  // rank 0 writes it (progress_word.h)
};
static_assert(offsetof(StopPage, progress) == kProgressOffset);
inline constexpr size_t kStopPageBytes = 4096;

// Maps the page of the file into `page`, for good. Returns why it cannot; "": it has.
std::string MapStopPage(const std::string& path, StopPage** page);

// A worker's view of the page. Any thread.
class StopFlag {
 public:
  // Maps the file; "": there is none. One that cannot be used leaves a flag that is never set.
  explicit StopFlag(const std::string& path);
  ~StopFlag();
  StopFlag(const StopFlag&) = delete;
  StopFlag& operator=(const StopFlag&) = delete;

  // That of kStopFileVar, mapped at the first call; one that cannot be used is told of on stderr
  // then.
  static const StopFlag& OfThisProcess();

  bool IsRequested() const;
  // Tells the agent that this worker knows.
  void MarkHeard() const;
  // Why the file cannot be used, as a sentence; empty where it can, and where there is none.
  const std::string& problem() const { return problem_; }

 private:
  StopPage* page_ = nullptr;
  std::string problem_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_STOP_FLAG_H_
