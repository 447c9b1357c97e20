#include "worker_runtime/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/checkpoint_format.h"
#include "worker_runtime/checksum.h"

namespace ddp::internal {
namespace {

using ddprun::FileError;
using ddprun::SyncDirectory;
using ddprun::UniqueFd;
using ddprun::WriteAll;

constexpr size_t kChunkBytes = 1 << 20;

absl::Status DataLoss(absl::string_view path, absl::string_view why) {
  return absl::DataLossError(absl::StrCat("\"", path, "\": ", why));
}

absl::Status ReadAll(int fd, void* data, size_t bytes, const std::string& path) {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, p, std::min(bytes, size_t{1} << 30));
    if (got < 0) {
      if (errno == EINTR) continue;
      return FileError("read", path);
    }
    if (got == 0) return DataLoss(path, "it became shorter while it was read");
    p += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

// Starts with a dot and ends so that Save finds and removes what a dead run has left of it.
std::string TemporaryPath(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/.", name, ".tmp-", ::getpid());
}

absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) && !absl::IsOutOfRange(status)) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; make room, keep fewer checkpoints or save ",
                                   "in another directory; what was saved before is whole"));
}

// Writes `temporary`; errors name `path`, which it is to become.
absl::Status WriteContent(const std::string& temporary, const std::string& path,
                          const TrainingState& state, std::span<const Tensor> tensors) {
  const std::string header = EncodeCheckpointHeader(state, tensors);
  if (header.size() - kPrefixBytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("save \"", path, "\": the names of its ", tensors.size(),
                     " tensors and the state's extra take ", header.size() - kPrefixBytes,
                     " bytes, more than ", kMaxHeaderBytes, "; large state belongs into a tensor"));
  }
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) return WithAdvice(FileError("create", path));
  Checksum checksum;
  const auto put = [&](const void* data, size_t bytes) {
    checksum.Add(data, bytes);
    return WriteAll(fd.get(), {static_cast<const char*>(data), bytes}, path);
  };
  absl::Status status = put(header.data(), header.size());
  for (const Tensor& tensor : tensors) {
    if (status.ok()) status = put(tensor.data, Bytes(tensor));
  }
  const Checksum::Digest digest = checksum.Get();
  const auto* digest_bytes = reinterpret_cast<const char*>(digest.data());
  if (status.ok()) status = WriteAll(fd.get(), {digest_bytes, digest.size()}, path);
  if (status.ok() && ::fsync(fd.get()) != 0) status = FileError("fsync", path);
  return WithAdvice(status);
}

// Checks the checksum of everything but itself; leaves the position after it.
absl::Status VerifyChecksum(int fd, uint64_t file_bytes, const std::string& path) {
  Checksum checksum;
  std::vector<char> chunk(kChunkBytes);
  Checksum::Digest stored;
  for (uint64_t rest = file_bytes - stored.size(); rest > 0;) {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(rest, chunk.size()));
    if (absl::Status status = ReadAll(fd, chunk.data(), bytes, path); !status.ok()) return status;
    checksum.Add(chunk.data(), bytes);
    rest -= bytes;
  }
  if (absl::Status status = ReadAll(fd, stored.data(), stored.size(), path); !status.ok()) {
    return status;
  }
  if (checksum.Get() == stored) return absl::OkStatus();
  return DataLoss(path, absl::StrCat("the checksum over its ", file_bytes, " bytes is wrong"));
}

// The header of a file whose checksum is right; leaves the position after it.
absl::StatusOr<CheckpointHeader> ReadHeader(int fd, uint64_t file_bytes, const std::string& path) {
  char prefix[kPrefixBytes];
  if (absl::Status status = ReadAll(fd, prefix, sizeof(prefix), path); !status.ok()) return status;
  const absl::string_view view(prefix, sizeof(prefix));
  ByteReader length(view.substr(kCheckpointMagic.size()));
  const uint64_t header_bytes = length.Number<uint64_t>();
  if (header_bytes > std::min(kMaxHeaderBytes, file_bytes)) {
    return DataLoss(path, "its header is not one of ours");
  }
  std::string bytes(static_cast<size_t>(header_bytes), '\0');
  if (absl::Status status = ReadAll(fd, bytes.data(), bytes.size(), path); !status.ok()) {
    return status;
  }
  absl::StatusOr<CheckpointHeader> header = DecodeCheckpointHeader(bytes);
  if (!header.ok()) return DataLoss(path, header.status().message());
  uint64_t expected = kPrefixBytes + header_bytes + sizeof(Checksum::Digest);
  for (const Tensor& tensor : header->tensors) expected += Bytes(tensor);
  if (expected != file_bytes) return DataLoss(path, "its size does not match its header");
  return header;
}

// The size of a file that may be a checkpoint: long enough, with the right magic.
absl::StatusOr<uint64_t> CheckMagic(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return FileError("stat", path);
  const uint64_t bytes = static_cast<uint64_t>(info.st_size);
  if (bytes < kPrefixBytes + sizeof(Checksum::Digest)) {
    return DataLoss(path, absl::StrCat("it is truncated to ", bytes, " bytes"));
  }
  char magic[kCheckpointMagic.size()];
  if (absl::Status status = ReadAll(fd, magic, sizeof(magic), path); !status.ok()) return status;
  const absl::string_view found(magic, sizeof(magic));
  if (found == kEarlierMagic) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", path, "\": an earlier version of this library wrote it, and this one ",
                     "cannot read it; go on with that version, or begin in another directory"));
  }
  if (found != kCheckpointMagic) {
    return DataLoss(path, absl::StrCat("it does not start with \"", kCheckpointMagic, "\""));
  }
  if (::lseek(fd, 0, SEEK_SET) != 0) return FileError("seek", path);
  return bytes;
}

}  // namespace

absl::Status WriteCheckpointFile(const std::string& directory, const std::string& name,
                                 const TrainingState& state, std::span<const Tensor> tensors,
                                 const std::function<absl::Status()>& may_commit) {
  const std::string path = absl::StrCat(directory, "/", name);
  const std::string temporary = TemporaryPath(directory, name);
  absl::Status status = WriteContent(temporary, path, state, tensors);
  if (status.ok()) status = may_commit();
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    status = WithAdvice(FileError("rename", path));
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(directory);
}

absl::Status TryCheckpointFile(const std::string& directory) {
  const std::string path = TemporaryPath(directory, "checkpoint-try.ckpt");
  absl::Status status;
  {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    status = fd.is_open() ? WriteAll(fd.get(), "x", directory) : FileError("save in", directory);
  }
  ::unlink(path.c_str());
  return status;
}

absl::StatusOr<TrainingState> ReadCheckpointFile(const std::string& path,
                                                 std::span<const Tensor> tensors) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return FileError("open", path);
  const absl::StatusOr<uint64_t> bytes = CheckMagic(fd.get(), path);
  if (!bytes.ok()) return bytes.status();
  if (absl::Status status = VerifyChecksum(fd.get(), *bytes, path); !status.ok()) return status;
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return FileError("seek", path);
  absl::StatusOr<CheckpointHeader> header = ReadHeader(fd.get(), *bytes, path);
  if (!header.ok()) return header.status();
  if (absl::Status status = CheckSameTensors(header->tensors, tensors); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("\"", path, "\" ", status.message()));
  }
  for (const Tensor& tensor : tensors) {
    absl::Status status = ReadAll(fd.get(), tensor.data, Bytes(tensor), path);
    if (!status.ok()) return status;
  }
  return std::move(header->state);
}

}  // namespace ddp::internal
