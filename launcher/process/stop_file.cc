#include "launcher/process/stop_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/folder_note.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/progress_word.h"

namespace ddprun::launcher {

absl::StatusOr<std::unique_ptr<StopFile>> StopFile::Make(const std::string& folder) {
  static_assert(offsetof(Page, progress) == ddp::internal::kProgressOffset);
  std::string path = absl::StrCat(folder, "/", kStopFileName);
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return absl::ErrnoToStatus(errno, "create " + path);
  const auto fail = [&path](int error, const char* what) {
    unlink(path.c_str());
    return absl::ErrnoToStatus(error, absl::StrCat(what, " ", path));
  };
  // Not ftruncate: on a full disk the first write to the page would be a SIGBUS.
  if (const int error = posix_fallocate(file.get(), 0, kBytes); error != 0) {
    return fail(error, "make room for");
  }
  void* page =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (page == MAP_FAILED) return fail(errno, "map");
  // So that it is never read from a disk again. Where the limit forbids it, that is seldom needed.
  static_cast<void>(mlock(page, kBytes));
  return std::unique_ptr<StopFile>(new StopFile(std::move(path), static_cast<Page*>(page)));
}

StopFile::~StopFile() { DDP_CHECK(munmap(page_, kBytes) == 0); }

void StopFile::Ask() { std::atomic_ref(page_->is_asked).store(1); }

bool StopFile::was_read() const { return std::atomic_ref(page_->was_read).load() != 0; }

uint64_t StopFile::progress() const { return std::atomic_ref(page_->progress).load(); }

void StopFile::Unlink() const { unlink(path_.c_str()); }

bool StopFile::Exists() const { return access(path_.c_str(), R_OK | W_OK) == 0; }

}  // namespace ddprun::launcher
