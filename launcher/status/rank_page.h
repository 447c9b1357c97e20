// The page of memory in which one worker tells of itself (worker_runtime/counters_page.h), from the
// agent's side.
#ifndef DDPRUN_LAUNCHER_STATUS_RANK_PAGE_H_
#define DDPRUN_LAUNCHER_STATUS_RANK_PAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/status/rank_counts.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// A memfd, sealed against growing and shrinking, so that no reader or writer meets a page that is
// not there. Its content is the worker's and believed in nothing: RankCounts bounds it.
class RankPage {
 public:
  // RESOURCE_EXHAUSTED, UNAVAILABLE: this machine has no memory or descriptor for it.
  static absl::StatusOr<std::unique_ptr<RankPage>> Make();
  ~RankPage();
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;

  // For the worker; close-on-exec here. -1: closed.
  int fd() const { return fd_.get(); }
  // The worker has it.
  void CloseDescriptor() { fd_ = UniqueFd(); }
  // What stands there now. Any thread; also when the worker hangs or is dead.
  RankCounts Read() const;

 private:
  RankPage(UniqueFd fd, uint64_t* words) : fd_(std::move(fd)), words_(words) {}

  UniqueFd fd_;
  uint64_t* const words_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_RANK_PAGE_H_
