#include "launcher/process/folder_note.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "process/raw_syscall.h"

namespace ddprun::launcher {
namespace {

// Passes over one folder while entries are found that go: a walk may miss what moves under it.
constexpr int kMaxPasses = 100;

DDPRUN_RAW bool IsOwnOrParent(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

DDPRUN_RAW bool BeginsWith(const char* name, const char* stem) {
  while (*stem != '\0' && *name == *stem) ++name, ++stem;
  return *stem == '\0';
}

DDPRUN_RAW bool IsStopFile(const char* name) {
  return BeginsWith(name, kStopFileName) && name[sizeof(kStopFileName) - 1] == '\0';
}

// 0: there is none of that name.
DDPRUN_RAW mode_t KindOf(int folder, const char* name) {
  struct stat about;
  const bool is_there = syscall(SYS_newfstatat, folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0;
  return is_there ? about.st_mode & S_IFMT : 0;
}

// Nothing but a socket: what else has such a name is not ours.
DDPRUN_RAW bool IsServerSocket(int folder, const char* name) {
  return BeginsWith(name, kServerSocketStem) && KindOf(folder, name) == S_IFSOCK;
}

DDPRUN_RAW bool RemoveServerSocket(int folder, const char* name) {
  return IsServerSocket(folder, name) && syscall(SYS_unlinkat, folder, name, 0) == 0;
}

// How deep below the run's folder the workers' are: attempt_<restart_count>/<local rank>.
constexpr int kWorkerLevels = 2;

// Whether the open `folder` holds, `levels` deep, files of ddprun's own alone, and can be read.
DDPRUN_RAW bool HoldsOwnFilesAlone(int folder, int levels) {
  syscall(SYS_lseek, folder, 0, SEEK_SET);
  RawEntries entries(folder);
  while (const char* name = entries.Next()) {
    if (IsOwnOrParent(name)) continue;
    bool is_own = false;
    if (const int inner = levels > 0 ? OpenFolder(folder, name) : -1; inner >= 0) {
      is_own = HoldsOwnFilesAlone(inner, levels - 1);
      syscall(SYS_close, inner);
    } else if (levels == 0) {
      is_own = BeginsWith(name, kErrorFileStem) && KindOf(folder, name) == S_IFREG;
    } else {
      const bool is_stop_file = levels == kWorkerLevels && IsStopFile(name);
      is_own = is_stop_file || IsServerSocket(folder, name);
    }
    if (!is_own) return false;
  }
  return !entries.has_failed();
}

// REQUIRES: HoldsOwnFilesAlone(folder, levels).
DDPRUN_RAW void RemoveErrorFilesIn(int folder, int levels) {
  bool is_changed = true;
  for (int pass = 0; pass < kMaxPasses && is_changed; ++pass) {
    is_changed = false;
    syscall(SYS_lseek, folder, 0, SEEK_SET);
    RawEntries entries(folder);
    while (const char* name = entries.Next()) {
      if (IsOwnOrParent(name)) continue;
      if (levels == 0) {
        is_changed |=
            BeginsWith(name, kErrorFileStem) && syscall(SYS_unlinkat, folder, name, 0) == 0;
        continue;
      }
      const int inner = OpenFolder(folder, name);
      if (inner < 0) continue;
      RemoveErrorFilesIn(inner, levels - 1);
      syscall(SYS_close, inner);
    }
  }
}

}  // namespace

DDPRUN_RAW int OpenFolder(int parent, const char* name) {
  return static_cast<int>(
      syscall(SYS_openat, parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

DDPRUN_RAW void RemoveEmptyFoldersIn(int folder, int levels) {
  bool is_changed = true;
  for (int pass = 0; pass < kMaxPasses && is_changed; ++pass) {
    is_changed = false;
    syscall(SYS_lseek, folder, 0, SEEK_SET);
    RawEntries entries(folder);
    while (const char* name = entries.Next()) {
      if (IsOwnOrParent(name)) continue;
      if (levels > 1) {
        const int inner = OpenFolder(folder, name);
        if (inner >= 0) RemoveEmptyFoldersIn(inner, levels - 1);
        if (inner >= 0) syscall(SYS_close, inner);
      }
      // Refuses whatever is no directory, links among it, and one that holds anything.
      is_changed |= syscall(SYS_unlinkat, folder, name, AT_REMOVEDIR) == 0 ||
                    RemoveServerSocket(folder, name);
    }
  }
}

void FolderNote::Write(const std::string& folder) {
  std::error_code error;
  const std::string path = std::filesystem::absolute(folder, error);  // the guardian lives in /
  if (error) return;
  struct stat about {};
  if (path.size() >= kMaxPath || lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) {
    return;
  }
  const uint32_t next = count_ + 1;
  Entry& entry = entries_[next % kEntries];
  std::memcpy(entry.path, path.c_str(), path.size() + 1);
  entry.device = about.st_dev;
  entry.inode = about.st_ino;
  __atomic_store_n(&count_, next, __ATOMIC_RELEASE);
}

DDPRUN_RAW void FolderNote::RemoveEmptyFolders() const {
  const uint32_t count = __atomic_load_n(&count_, __ATOMIC_ACQUIRE);
  for (uint32_t n = count; n > 0 && n + 2 > count; --n) RemoveEmpty(entries_[n % kEntries]);
}

DDPRUN_RAW void FolderNote::RemoveEmpty(const Entry& entry) {
  const int folder = OpenFolder(AT_FDCWD, entry.path);
  if (folder < 0) return;
  struct stat about;
  if (syscall(SYS_fstat, folder, &about) == 0 && about.st_dev == entry.device &&
      about.st_ino == entry.inode) {
    if (HoldsOwnFilesAlone(folder, kWorkerLevels)) RemoveErrorFilesIn(folder, kWorkerLevels);
    RemoveEmptyFoldersIn(folder, kWorkerLevels);
    syscall(SYS_unlinkat, folder, kStopFileName, 0);
    syscall(SYS_unlinkat, AT_FDCWD, entry.path, AT_REMOVEDIR);
  }
  syscall(SYS_close, folder);
}

void FileNote::Write(const std::string& file) {
  std::error_code error;
  const std::string path = std::filesystem::absolute(file, error);
  struct stat about {};
  if (error || path.size() >= sizeof(path_) || lstat(path.c_str(), &about) != 0) return;
  if (!S_ISREG(about.st_mode)) return;
  std::memcpy(path_, path.c_str(), path.size() + 1);
  device_ = about.st_dev;
  inode_ = about.st_ino;
  __atomic_store_n(&is_noted_, 1, __ATOMIC_RELEASE);
}

DDPRUN_RAW void FileNote::Remove() const {
  if (__atomic_load_n(&is_noted_, __ATOMIC_ACQUIRE) == 0) return;
  struct stat about;
  const bool is_same = syscall(SYS_newfstatat, AT_FDCWD, path_, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                       about.st_dev == device_ && about.st_ino == inode_;
  if (is_same) syscall(SYS_unlinkat, AT_FDCWD, path_, 0);
}

}  // namespace ddprun::launcher
