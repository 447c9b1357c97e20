#include "launcher/status/disk_facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "launcher/status/bytes_text.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Between a number of blocks that may be anything and what can be counted with.
int64_t Bytes(uint64_t blocks, uint64_t size) {
  const double bytes = static_cast<double>(blocks) * static_cast<double>(size);
  return bytes >= 9e18 ? int64_t{9'000'000'000'000'000'000} : static_cast<int64_t>(blocks * size);
}

std::optional<DiskSpace> ReadSpace(const std::string& path) {
  struct statvfs system {};
  int result = 0;
  do {
    result = statvfs(path.c_str(), &system);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return std::nullopt;
  return DiskSpace{.total_bytes = Bytes(system.f_blocks, system.f_frsize),
                   .free_bytes = Bytes(system.f_bavail, system.f_frsize),
                   .total_files = Bytes(system.f_files, 1),
                   .free_files = Bytes(system.f_favail, 1),
                   .is_read_only = (system.f_flag & ST_RDONLY) != 0};
}

}  // namespace

std::optional<Problem> JudgeDisk(const std::string& path, const DiskSpace& space) {
  // Some file systems (/proc, others' drivers) have no size at all.
  if (space.is_read_only || space.total_bytes <= 0) return std::nullopt;
  const int64_t enough = std::min(std::clamp(space.total_bytes / 100, 100 * kMiB, 10240 * kMiB),
                                  space.total_bytes / 10);
  const std::string where = "the file system of " + EscapeControl(path) + " ";
  if (space.free_bytes < enough) {
    return Problem{.kind = "disk",
                   .text = where + (space.free_bytes <= 0 ? "is full: " : "is nearly full: ") +
                           BytesText(std::max<int64_t>(space.free_bytes, 0)) + " of " +
                           BytesText(space.total_bytes) + " are free"};
  }
  if (space.total_files > 0 &&
      space.free_files < std::min(space.total_files / 100, int64_t{10'000})) {
    return Problem{.kind = "disk",
                   .text = where + "has room for " + std::to_string(space.free_files) + " of " +
                           std::to_string(space.total_files) +
                           " files (inodes), however small they are"};
  }
  return std::nullopt;
}

std::vector<Problem> ReadDiskProblems(const std::vector<std::string>& paths) {
  std::vector<Problem> problems;
  std::vector<dev_t> seen;
  for (const std::string& path : paths) {
    struct stat folder {};
    if (stat(path.c_str(), &folder) != 0) continue;
    if (std::find(seen.begin(), seen.end(), folder.st_dev) != seen.end()) continue;
    seen.push_back(folder.st_dev);
    const std::optional<DiskSpace> space = ReadSpace(path);
    if (!space) continue;
    if (std::optional<Problem> problem = JudgeDisk(path, *space)) {
      problems.push_back(std::move(*problem));
    }
  }
  return problems;
}

}  // namespace ddprun::launcher
