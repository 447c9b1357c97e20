#include "ddp/run_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/read_system_facts.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/base/version.h"
#include "worker_runtime/gpu/gpu_runtime.h"
#include "worker_runtime/gpu/nccl_version.h"
#include "worker_runtime/mask_secrets.h"
// The header alone: programs link no further library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ddp {
namespace {

using ddprun::FileError;
using ddprun::UniqueFd;

constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kMaxRecordBytes = 64 << 20;  // a bound on what is compared

// Calls `take` with each piece of the file; the number of bytes.
template <typename Take>
absl::StatusOr<int64_t> ReadPieces(const std::string& path, Take take) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return FileError("open", path);
  std::vector<char> chunk(kChunkBytes);
  for (int64_t bytes = 0;;) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("read", path);
    if (got == 0) return bytes;
    take(absl::string_view(chunk.data(), static_cast<size_t>(got)));
    bytes += got;
  }
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr) {
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  return text;
}

std::string Compiler() {
#if defined(__clang__)
  return absl::StrCat("clang ", __clang_version__);
#else
  return absl::StrCat("g++ ", __VERSION__);
#endif
}

RunRecord::Pairs AllowedEnvironment() {
  RunRecord::Pairs found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const absl::string_view variable = *at;
    const size_t equals = variable.find('=');
    if (equals == absl::string_view::npos) continue;
    const absl::string_view name = variable.substr(0, equals);
    for (const char* prefix : {"NCCL_", "OMP_", "CUDA_", "DDPRUN_"}) {
      if (!absl::StartsWith(name, prefix)) continue;
      found.emplace_back(name, internal::MaskValue(name, variable.substr(equals + 1)));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// What the group on GPUs has opened; nothing is opened for this.
void AddGpu(int gpu, RunRecord& record) {
  std::string cuda, nccl;
  record.device = "cpu";
  if (gpu >= 0) {
    const auto& driver = internal::Cuda();
    const auto& library = internal::Nccl();
    internal::CudaDevice device{};
    char name[256] = "";
    if (driver.ok() && driver->api.cuDeviceGet(&device, gpu) == internal::kCudaSuccess) {
      driver->api.cuDeviceGetName(name, sizeof name - 1, device);
    }
    record.device = name;
    if (driver.ok()) cuda = absl::StrCat(driver->version / 1000, ".", driver->version % 1000 / 10);
    if (library.ok()) nccl = internal::NcclVersionText(library->version);
  }
  record.versions.emplace_back("cuda", cuda);
  record.versions.emplace_back("nccl", nccl);
}

std::string TemporaryPrefix() { return absl::StrCat(".", kRunRecordName, ".tmp-"); }

// Ranks on several hosts may write at one time, and containers may share a host's name and have the
// same process ids: the time tells these apart.
std::string TemporaryName() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return absl::StrCat(TemporaryPrefix(), host, "-", getpid(), "-",
                      std::chrono::system_clock::now().time_since_epoch().count());
}

// The lines of ToJson() that tell of the end: outcome, error and ended_at.
constexpr size_t kEndLines[] = {1, 2, 4};

// `text` with the end that is in `other`. Both are ToJson()'s, or the result is neither.
std::string WithEndOf(const std::string& text, const std::string& other) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> others = absl::StrSplit(other, '\n');
  for (const size_t line : kEndLines) {
    if (line < std::min(lines.size(), others.size())) lines[line] = others[line];
  }
  return absl::StrJoin(lines, "\n");
}

// `text` as it was before it had an end.
std::string AsRunning(const std::string& text) { return WithEndOf(text, ToJson(RunRecord())); }

// What a run that was killed while it wrote has left. A young one may be of a run that is writing
// now. Best effort.
void RemoveTemporaries(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator file(directory, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    if (!absl::StartsWith(file->path().filename().native(), TemporaryPrefix())) continue;
    std::error_code unknown;
    const auto written_at = std::filesystem::last_write_time(file->path(), unknown);
    const auto now = std::filesystem::file_time_type::clock::now();
    if (!unknown && now - written_at > std::chrono::minutes(1)) ::unlink(file->path().c_str());
  }
}

}  // namespace

absl::StatusOr<DataFile> DescribeDataFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return DataFile{.path = internal::MaskUrls(path)};
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  const absl::StatusOr<int64_t> bytes = ReadPieces(path, [&state](absl::string_view piece) {
    XXH3_64bits_update(&state, piece.data(), piece.size());
  });
  if (!bytes.ok()) return bytes.status();
  return DataFile{.path = internal::MaskUrls(path),
                  .bytes = *bytes,
                  .xxh3 = absl::StrFormat("%016x", uint64_t{XXH3_64bits_digest(&state)})};
}

RunRecord MakeRunRecord(ProcessGroup& group, const std::vector<std::string>& arguments) {
  const ddprun::SystemFacts system = ddprun::ReadSystemFacts();
  RunRecord record;
  record.started_at = Now();
  record.versions = {{"ddprun", ddprun::kVersion},
                     {"compiler", Compiler()},
                     {"glibc", system.glibc},
                     {"kernel", system.kernel},
                     {"nvidia_driver", system.nvidia_module}};
  AddGpu(group.gpu(), record);
  record.host = system.host;
  record.cpu = system.cpu;
  record.cpus = system.cpus;
  record.backend = group.communicator().backend();
  record.why = group.description();
  record.world_size = group.world_size();
  record.local_world_size = group.local_world_size();
  record.restart_count = group.restart_count();
  record.arguments = internal::MaskArguments(arguments);
  record.environment = AllowedEnvironment();
  return record;
}

void RunRecord::End(const absl::Status& status, bool was_asked_to_stop) {
  ended_at = Now();
  outcome = !status.ok()        ? RunOutcome::kFailed
            : was_asked_to_stop ? RunOutcome::kStopped
                                : RunOutcome::kOk;
  error = internal::MaskUrls(status.message());
}

absl::StatusOr<std::string> RunRecordFile::Read() const {
  std::string there;
  const absl::StatusOr<int64_t> read = ReadPieces(path_, [&there](absl::string_view piece) {
    if (there.size() <= kMaxRecordBytes) there.append(piece.data(), piece.size());
  });
  if (!read.ok() && !absl::IsNotFound(read.status())) return read.status();
  return there;
}

absl::StatusOr<bool> RunRecordFile::Replace(const std::string& text, const Check& may_replace) {
  const std::string temporary = absl::StrCat(directory_, "/", TemporaryName());
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.is_open()) return FileError("create", path_);
  absl::Status status = ddprun::WriteAll(fd.get(), text, path_);
  if (status.ok() && ::fsync(fd.get()) != 0) status = FileError("fsync", path_);
  bool is_allowed = true;
  if (status.ok() && may_replace != nullptr) {
    const absl::StatusOr<std::string> there = Read();
    status = there.status();
    is_allowed = there.ok() && may_replace(*there);
  }
  if (status.ok() && is_allowed && std::rename(temporary.c_str(), path_.c_str()) != 0) {
    status = FileError("rename to", path_);
  }
  if (!status.ok() || !is_allowed) {
    ::unlink(temporary.c_str());
    if (!status.ok()) return status;
    return false;
  }
  begun_ = AsRunning(text);
  status = ddprun::SyncDirectory(directory_);
  if (!status.ok()) return status;
  return true;
}

absl::Status RunRecordFile::Write(const RunRecord& record) {
  if (begun_.empty()) {
    RemoveTemporaries(directory_);
    return Replace(ToJson(record), nullptr).status();
  }
  // Another rank of this run may have written its end.
  const absl::StatusOr<bool> is_replaced = Replace(
      ToJson(record),
      [this](const std::string& there) { return there.empty() || AsRunning(there) == begun_; });
  if (!is_replaced.ok() || *is_replaced) return is_replaced.status();
  return absl::FailedPreconditionError(
      absl::StrCat("write \"", path_,
                   "\": another run has written there since this one did, whose record stays; "
                   "give each run a directory of its own"));
}

absl::Status RunRecordFile::WriteEnd(RunOutcome outcome, absl::string_view error) {
  const auto is_running = [this](const std::string& there) { return there == begun_; };
  const absl::StatusOr<std::string> there = Read();
  // What this rank cannot read is no record for it to end.
  if (begun_.empty() || !there.ok() || !is_running(*there)) return absl::OkStatus();
  RunRecord end;
  end.outcome = outcome;
  end.error = internal::MaskUrls(error);
  end.ended_at = Now();
  return Replace(WithEndOf(begun_, ToJson(end)), is_running).status();
}

}  // namespace ddp
