#include "worker_runtime/stop_flag.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/env_contract.h"

namespace ddp::internal {
namespace {

// Between processes only what needs no lock works.
static_assert(std::atomic_ref<uint32_t>::is_always_lock_free);

}  // namespace

std::string MapStopPage(const std::string& path, StopPage** page) {
  // Not blocking: a FIFO would wait for its other end.
  const ddprun::UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return std::strerror(errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return std::strerror(errno);
  if (!S_ISREG(status.st_mode)) return "not a regular file";
  // What is read beyond the file's end is SIGBUS.
  if (status.st_size < static_cast<off_t>(sizeof(StopPage))) {
    return absl::StrCat("it has ", status.st_size, " bytes, expected at least ", sizeof(StopPage));
  }
  void* memory = mmap(nullptr, sizeof(StopPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return std::strerror(errno);
  *page = static_cast<StopPage*>(memory);
  return "";
}

StopFlag::StopFlag(const std::string& path) {
  if (path.empty()) return;
  const std::string why = MapStopPage(path, &page_);
  if (why.empty()) return;
  problem_ = absl::StrCat("map the stop file \"", path, "\" of ", kStopFileVar, ": ", why,
                          "; this process does not hear when its launcher asks it to stop");
}

StopFlag::~StopFlag() {
  if (page_ != nullptr) munmap(page_, sizeof(StopPage));
}

const StopFlag& StopFlag::OfThisProcess() {
  // Never destroyed: a thread may ask while the process ends.
  static const StopFlag& flag = *[] {
    const char* path = std::getenv(kStopFileVar);
    auto* mapped = new StopFlag(path == nullptr ? "" : path);
    if (!mapped->problem().empty()) std::fprintf(stderr, "ddp: %s\n", mapped->problem().c_str());
    return mapped;
  }();
  return flag;
}

bool StopFlag::IsRequested() const {
  return page_ != nullptr &&
         std::atomic_ref<uint32_t>(page_->is_requested).load(std::memory_order_acquire) != 0;
}

void StopFlag::MarkHeard() const {
  if (page_ == nullptr) return;
  std::atomic_ref<uint32_t>(page_->is_heard).store(1, std::memory_order_release);
}

}  // namespace ddp::internal
