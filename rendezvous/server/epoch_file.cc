#include "rendezvous/server/epoch_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/fnv1a.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::rendezvous {
namespace {

std::string Encode(uint64_t epoch) {
  const std::string body = absl::StrFormat("ddprun-epoch 1 %d ", epoch);
  Fnv1a checksum;  // finds a torn or flipped file, which is all it has to do
  checksum.Add(body.data(), body.size());
  return absl::StrFormat("%s%016x\n", body, checksum.value());
}

std::optional<uint64_t> Read(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.is_open()) return std::nullopt;
  std::array<char, 128> buffer{};
  ssize_t size = 0;
  do {
    size = read(fd.get(), buffer.data(), buffer.size() - 1);
  } while (size < 0 && errno == EINTR);
  unsigned long long epoch = 0;
  if (size <= 0 || std::sscanf(buffer.data(), "ddprun-epoch 1 %llu ", &epoch) != 1) {
    return std::nullopt;
  }
  if (Encode(epoch) != std::string_view(buffer.data(), size)) return std::nullopt;
  return epoch;
}

absl::Status Write(const std::string& run_dir, const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".new");
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) return FileError("create", temporary);
  if (absl::Status status = WriteAll(fd.get(), text, temporary); !status.ok()) return status;
  if (fsync(fd.get()) != 0) return FileError("sync", temporary);
  fd.Reset();
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError("rename to", path);
  return SyncDirectory(run_dir);
}

uint64_t EpochFromTimeOfDay() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return static_cast<uint64_t>(std::max<int64_t>(1, microseconds));
}

}  // namespace

absl::StatusOr<Epoch> NextEpoch(const std::string& run_dir) {
  if (run_dir.empty()) return Epoch{EpochFromTimeOfDay()};
  const std::string path = absl::StrCat(run_dir, "/epoch");
  const std::optional<uint64_t> last = Read(path);
  const uint64_t next = last && *last < UINT64_MAX ? *last + 1 : EpochFromTimeOfDay();
  absl::Status status = absl::NotFoundError("not tried");
  // More than once: a job on the same port in another network namespace may just be removing it.
  for (int attempt = 0; attempt < 3 && absl::IsNotFound(status); ++attempt) {
    (void)mkdir(run_dir.c_str(), 0700);  // if it is still not there, the next call says so
    status = Write(run_dir, path, Encode(next));
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("epoch file: ", status.message()));
  }
  return Epoch{next};
}

void ForgetEpoch(const std::string& run_dir) {
  if (run_dir.empty()) return;
  (void)unlink(absl::StrCat(run_dir, "/epoch").c_str());
  (void)rmdir(run_dir.c_str());
}

}  // namespace ddprun::rendezvous
