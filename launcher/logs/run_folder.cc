#include "launcher/logs/run_folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "launcher/process/folder_note.h"
#include "launcher/process/owner_tag.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxNamePart = 100;

// The run id is the user's: it must not lead out of the log directory.
std::string FileNamePart(const std::string& run_id) {
  std::string name = run_id.substr(0, kMaxNamePart);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return !absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.'; }, '_');
  if (name.empty() || name[0] == '.') name.insert(0, "_");
  return name;
}

absl::Status MakeFolder(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("create folder ", path));
}

// Makes `path` with all its parents, as private as the user's own logs should be.
absl::Status MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS) {
      return absl::ErrnoToStatus(errno, absl::StrCat("create folder ", parent));
    }
  }
  return MakeFolder(path, 0700);
}

absl::StatusOr<std::string> MakeFreshFolder(const std::string& parent, const std::string& name) {
  std::string pattern = parent + "/" + name;
  if (mkdtemp(pattern.data()) != nullptr) return pattern;
  return absl::ErrnoToStatus(errno, absl::StrCat("create a folder in ", parent));
}

// "ddprun_<run_id>_<tag>_XXXXXX". Neither the tag nor what is behind it holds a '_'.
std::string_view TagOfName(std::string_view name) {
  const size_t end = name.rfind('_');
  if (name.substr(0, 7) != "ddprun_" || end == 0) return {};
  const size_t before = name.rfind('_', end - 1);
  return before == std::string_view::npos ? std::string_view()
                                          : name.substr(before + 1, end - before - 1);
}

// Whether a few error files surely fit: one that cannot be written is missed when it matters.
bool HasRoom(const std::string& directory) {
  constexpr uint64_t kEnough = uint64_t{1} << 20;
  struct statvfs system {};
  if (directory.empty() || statvfs(directory.c_str(), &system) != 0) return false;
  // A file system without a fixed number of files says 0 of 0.
  const bool has_files = system.f_files == 0 || system.f_favail >= 1024;
  return has_files && uint64_t{system.f_bavail} * system.f_frsize >= kEnough;
}

// As the guardian does it.
void RemoveEmpty(const std::vector<std::string>& folders) {
  FolderNote note;
  for (const std::string& folder : folders) {
    note.Write(folder);
    note.RemoveEmptyFolders();
  }
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Create(Options options) {
  RunFolder folder(std::move(options));
  if (folder.options_.log_dir.empty() || folder.options_.log_dir == "/dev/null") return folder;
  if (absl::Status status = folder.MakeRunFolder(); !status.ok()) return status;
  return folder;
}

absl::Status RunFolder::MakeRunFolder() {
  absl::StatusOr<std::string> made = std::string();
  if (is_temporary()) {
    made = MakeTemporary();
  } else {
    if (absl::Status status = MakeFolders(options_.log_dir); !status.ok()) return status;
    const std::string node = options_.node.empty() ? "" : "_" + FileNamePart(options_.node);
    made = MakeFreshFolder(options_.log_dir, FileNamePart(options_.run_id) + node + "_XXXXXX");
  }
  if (made.ok()) path_ = *std::move(made);
  return made.status();
}

absl::StatusOr<std::string> RunFolder::MakeTemporary() {
  absl::StatusOr<std::string> made = absl::NotFoundError("");
  if (HasRoom(options_.memory_dir)) made = MakeTemporaryIn(options_.memory_dir);
  if (!made.ok()) made = MakeTemporaryIn(options_.temp_dir);
  if (made.ok() || options_.temp_dir == options_.last_dir) return made;
  // As Python's tempfile, and so torchrun, where TMPDIR names what is not there.
  absl::StatusOr<std::string> last = MakeTemporaryIn(options_.last_dir);
  if (last.ok()) return last;
  return absl::Status(made.status().code(),
                      absl::StrCat(made.status().message(), "; ", last.status().message(),
                                   " (TMPDIR or --log-dir may name another folder)"));
}

absl::StatusOr<std::string> RunFolder::MakeTemporaryIn(const std::string& parent) {
  const std::string tag = OwnerTag();
  absl::StatusOr<std::string> made =
      MakeFreshFolder(parent, absl::StrCat("ddprun_", FileNamePart(options_.run_id),
                                           tag.empty() ? "" : "_", tag, "_XXXXXX"));
  if (!made.ok()) return made;
  temporaries_.push_back(*made);
  if (options_.on_temporary) options_.on_temporary(*made);
  return made;
}

absl::StatusOr<std::string> RunFolder::MemoryFolder() {
  const bool is_there = absl::StartsWith(path_, options_.shared_memory_dir + "/");
  std::string& folder = is_temporary() && is_there ? path_ : beside_;
  if (!folder.empty() && access(folder.c_str(), W_OK) != 0) folder.clear();
  if (!folder.empty()) return folder;
  absl::StatusOr<std::string> made = MakeTemporaryIn(options_.shared_memory_dir);
  if (made.ok()) folder = *made;
  return made;
}

void RunFolder::BeginAttempt(int restart_count) {
  const int earlier = attempts_seen_[restart_count]++;
  attempt_ = absl::StrCat("attempt_", restart_count);
  if (earlier > 0) absl::StrAppend(&attempt_, ".", earlier);
}

absl::StatusOr<std::string> RunFolder::MakeWorkerFolder(int local_rank) {
  if (options_.log_dir == "/dev/null") return std::string();
  absl::StatusOr<std::string> folder = TryMakeWorkerFolder(local_rank);
  if (folder.ok() || !is_temporary()) return folder;
  path_.clear();  // removed by somebody, or full
  return TryMakeWorkerFolder(local_rank);
}

absl::StatusOr<std::string> RunFolder::TryMakeWorkerFolder(int local_rank) {
  if (path_.empty()) {
    if (absl::Status status = MakeRunFolder(); !status.ok()) return status;
  }
  const std::string attempt = attempt_path();
  const std::string worker = absl::StrCat(attempt, "/", local_rank);
  for (const std::string& folder : {attempt, worker}) {
    if (absl::Status status = MakeFolder(folder, 0755); !status.ok()) return status;
  }
  return worker;
}

void RunFolder::RemoveTemporaries() {
  RemoveEmpty(temporaries_);
  temporaries_.clear();
}

void RunFolder::RemoveAbandonedTemporaries() const {
  std::set<std::string> parents = {options_.shared_memory_dir};
  if (is_temporary() && !path_.empty()) parents.insert(path_.substr(0, path_.rfind('/')));
  for (const std::string& parent : parents) RemoveEmpty(AbandonedIn(parent, TagOfName));
}

}  // namespace ddprun::launcher
