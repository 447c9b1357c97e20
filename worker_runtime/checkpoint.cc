#include "ddp/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "ddp/run_record.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/checkpoint_file.h"
#include "worker_runtime/checkpoint_format.h"
#include "worker_runtime/checksum.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

absl::Status FileError(absl::string_view what, const std::string& path, std::error_code error) {
  return absl::ErrnoToStatus(error.value(), absl::StrCat(what, " \"", path, "\""));
}

struct CheckpointName {
  int64_t sequence = 0;
  int64_t step = 0;
  std::string name;
};

// The checkpoints of a directory, newest first. The order is that of saving, not of the steps: a
// run that began anew in the same directory has the smaller step and the newer state.
absl::StatusOr<std::vector<CheckpointName>> List(const std::string& directory) {
  std::vector<CheckpointName> found;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    long long sequence = 0, step = 0;
    int end = 0;
    const int fields =
        std::sscanf(name.c_str(), "checkpoint-%lld-step-%lld.ckpt%n", &sequence, &step, &end);
    if (fields == 2 && end == static_cast<int>(name.size()))
      found.push_back({sequence, step, name});
  }
  if (error) return FileError("list", directory, error);
  std::sort(found.begin(), found.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return std::tie(a.sequence, a.step) > std::tie(b.sequence, b.step);
  });
  return found;
}

// With those above it that are missing. A folder's name is on disk when the one above is.
absl::Status MakeDirectory(const std::string& directory) {
  std::error_code error;
  const fs::path path = fs::absolute(directory, error);
  std::vector<fs::path> missing;
  for (fs::path at = path; !error && !at.empty() && !fs::exists(at, error); at = at.parent_path()) {
    missing.push_back(at);
  }
  if (!error) fs::create_directories(path, error);
  if (error) return FileError("make the checkpoint directory", directory, error);
  for (const fs::path& made : missing) {
    absl::Status status = ddprun::SyncDirectory(made.parent_path());
    if (absl::IsPermissionDenied(status)) continue;  // what may not be read cannot be synced
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Who saves in a directory takes the next number, by a file of that name. 0: nobody has.
constexpr absl::string_view kWriterPrefix = ".writer-";

absl::StatusOr<int64_t> NewestWriter(const std::string& directory) {
  int64_t newest = 0;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    absl::string_view number = name;
    int64_t writer = 0;
    if (absl::ConsumePrefix(&number, kWriterPrefix) && absl::SimpleAtoi(number, &writer)) {
      newest = std::max(newest, writer);
    }
  }
  if (error) return FileError("list", directory, error);
  return newest;
}

absl::StatusOr<int64_t> BecomeWriter(const std::string& directory) {
  constexpr int kMostAtOnce = 100;
  for (int attempt = 0; attempt < kMostAtOnce; ++attempt) {
    const absl::StatusOr<int64_t> newest = NewestWriter(directory);
    if (!newest.ok()) return newest.status();
    const std::string prefix = absl::StrCat(directory, "/", kWriterPrefix);
    const std::string mine = absl::StrCat(prefix, *newest + 1);
    const ddprun::UniqueFd fd(::open(mine.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.is_open() && errno == EEXIST) continue;  // another run takes it now
    if (!fd.is_open()) return ddprun::FileError("save in", directory);
    if (*newest > 0) ::unlink(absl::StrCat(prefix, *newest).c_str());
    return *newest + 1;
  }
  return absl::UnavailableError(absl::StrCat("become the one that saves in \"", directory,
                                             "\": other runs begin to all the time"));
}

// What a run that died while it saved has left behind.
void RemoveTemporaries(const std::string& directory) {
  std::error_code ignored;
  for (fs::directory_iterator it(directory, ignored); !ignored && it != fs::directory_iterator();
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".checkpoint-") && name.find(".ckpt.tmp-") != std::string::npos) {
      fs::remove(it->path(), ignored);
    }
  }
}

}  // namespace

std::string ChecksumHex(std::span<const Tensor> tensors) {
  internal::Checksum checksum;
  for (const Tensor& tensor : tensors) checksum.Add(tensor.data, internal::Bytes(tensor));
  return internal::ToHex(checksum.Get());
}

// What rank 0 found, told to everybody.
struct Checkpoint::Found {
  absl::Status status;
  bool is_found = false;
  TrainingState state;
  std::string path;
  std::vector<std::string> refused;

  std::string Encode() const {
    internal::ByteWriter writer;
    writer.Number(static_cast<int32_t>(status.code()));
    writer.String(status.message());
    writer.Number(static_cast<uint8_t>(is_found));
    writer.State(state);
    writer.String(path);
    writer.Number(static_cast<uint32_t>(refused.size()));
    for (const std::string& why : refused) writer.String(why);
    return writer.Take();
  }

  static Found Decode(absl::string_view bytes) {
    internal::ByteReader reader(bytes);
    Found found;
    const auto code = static_cast<absl::StatusCode>(reader.Number<int32_t>());
    found.status = absl::Status(code, reader.String());
    found.is_found = reader.Number<uint8_t>() != 0;
    found.state = reader.State();
    found.path = reader.String();
    const uint32_t refused = reader.Number<uint32_t>();
    for (uint32_t i = 0; i < refused && reader.ok(); ++i) found.refused.push_back(reader.String());
    if (!reader.is_at_end()) found.status = absl::InternalError("rank 0 sent half a message");
    return found;
  }
};

Checkpoint::Checkpoint(Communicator& communicator, CheckpointOptions options)
    : communicator_(communicator.host()), options_(std::move(options)) {
  DDP_CHECK(options_.keep >= 1);
}

absl::Status Checkpoint::CheckWritable() {
  if (communicator_.rank() != 0) return absl::OkStatus();
  if (absl::Status status = MakeDirectory(options_.directory); !status.ok()) return status;
  if (absl::Status status = CheckIsWriter(); !status.ok()) return status;
  RemoveTemporaries(options_.directory);
  return internal::TryCheckpointFile(options_.directory);
}

absl::Status Checkpoint::CheckIsWriter() {
  absl::StatusOr<int64_t> newest = NewestWriter(options_.directory);
  // Not begun, or all that was in the directory is gone.
  const bool is_new = writer_ == 0 || (newest.ok() && *newest == 0);
  if (newest.ok() && is_new) newest = BecomeWriter(options_.directory);
  if (!newest.ok()) return newest.status();
  if (is_new) writer_ = *newest;
  if (*newest == writer_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("save in \"", options_.directory,
                   "\": another run has begun to save there since this one did, whose state would "
                   "hide the other's; give each run a directory of its own"));
}

absl::StatusOr<std::optional<std::string>> Checkpoint::SetEarlierAside() {
  if (communicator_.rank() != 0) return std::nullopt;
  const absl::StatusOr<std::vector<CheckpointName>> names = List(options_.directory);
  if (!names.ok()) return names.status();
  if (names->empty()) return std::nullopt;
  if (absl::Status status = CheckIsWriter(); !status.ok()) return status;
  std::string folder;
  std::error_code error;
  for (int n = 1; folder.empty(); ++n) {
    const std::string path = absl::StrCat(options_.directory, "/earlier-", n);
    if (fs::create_directory(path, error)) folder = path;
    if (error) return FileError("make the folder", path, error);
  }
  const std::string record = absl::StrCat(options_.directory, "/", kRunRecordName);
  fs::rename(record, absl::StrCat(folder, "/", kRunRecordName), error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return FileError("move the earlier record", record, error);
  }
  // The newest last: a crash before leaves it in place, and it is found as if nothing had begun.
  for (auto name = names->rbegin(); name != names->rend(); ++name) {
    const std::string path = absl::StrCat(options_.directory, "/", name->name);
    fs::rename(path, absl::StrCat(folder, "/", name->name), error);
    if (error) return FileError("move the earlier checkpoint", path, error);
  }
  // Where they came to first: a power cut must find each name in one of the two.
  for (const std::string& directory : {folder, std::string(options_.directory)}) {
    if (absl::Status status = ddprun::SyncDirectory(directory); !status.ok()) return status;
  }
  return folder;
}

absl::Status Checkpoint::Save(const TrainingState& state, std::span<const Tensor> tensors) {
  if (communicator_.rank() != 0) return absl::OkStatus();
  const std::string& directory = options_.directory;
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  if (absl::Status status = CheckIsWriter(); !status.ok()) return status;
  RemoveTemporaries(directory);
  absl::StatusOr<std::vector<CheckpointName>> existing = List(directory);
  if (!existing.ok()) return existing.status();

  const int64_t sequence = existing->empty() ? 1 : existing->front().sequence + 1;
  // Not absl's StrFormat: its archive cannot be linked into libddp.so.
  const std::string name = absl::StrCat("checkpoint-", absl::Dec(sequence, absl::kZeroPad6),
                                        "-step-", state.step, ".ckpt");
  absl::Status status = internal::WriteCheckpointFile(directory, name, state, tensors,
                                                      [this] { return CheckIsWriter(); });
  if (!status.ok()) return status;
  latest_ = absl::StrCat(directory, "/", name);
  std::error_code error;
  for (size_t i = static_cast<size_t>(options_.keep) - 1; i < existing->size(); ++i) {
    const std::string old = absl::StrCat(directory, "/", (*existing)[i].name);
    fs::remove(old, error);
    if (error) return FileError("remove the old checkpoint", old, error);
  }
  return absl::OkStatus();
}

Checkpoint::Found Checkpoint::FindLatest(std::span<const Tensor> tensors) {
  Found found;
  const absl::StatusOr<std::vector<CheckpointName>> names = List(options_.directory);
  if (!names.ok()) {
    found.status = names.status();
    return found;
  }
  for (const CheckpointName& candidate : *names) {
    const std::string path = absl::StrCat(options_.directory, "/", candidate.name);
    absl::StatusOr<TrainingState> state = internal::ReadCheckpointFile(path, tensors);
    if (state.ok()) {
      found.is_found = true;
      found.state = *std::move(state);
      found.path = path;
      return found;
    }
    if (!absl::IsDataLoss(state.status())) {
      found.status = absl::Status(state.status().code(),
                                  absl::StrCat("load checkpoint: ", state.status().message()));
      return found;
    }
    found.refused.push_back(absl::StrCat("refused checkpoint ", state.status().message()));
  }
  if (!found.refused.empty()) {
    found.status = absl::DataLossError(absl::StrCat(
        "no usable checkpoint in \"", options_.directory, "\": ", found.refused.front(), "; all ",
        found.refused.size(), " are damaged, remove them to start over"));
  }
  return found;
}

absl::StatusOr<std::optional<TrainingState>> Checkpoint::LoadLatest(
    std::span<const Tensor> tensors) {
  std::string message;
  if (communicator_.rank() == 0) message = FindLatest(tensors).Encode();
  int64_t bytes = static_cast<int64_t>(message.size());
  absl::Status status = communicator_.Broadcast(&bytes, 1, DType::kInt64, /*root=*/0)->Wait();
  if (!status.ok()) return status;
  message.resize(static_cast<size_t>(bytes));
  status = communicator_.Broadcast(message.data(), message.size(), DType::kUint8, 0)->Wait();
  if (!status.ok()) return status;

  Found found = Found::Decode(message);
  refused_ = std::move(found.refused);
  if (!found.status.ok()) return found.status;
  if (!found.is_found) return std::nullopt;
  for (const Tensor& tensor : tensors) {
    status = communicator_.Broadcast(tensor.data, tensor.count, tensor.dtype, /*root=*/0)->Wait();
    if (status.ok()) continue;
    // The others wait for a call that was refused on this rank.
    if (communicator_.error().ok()) {
      communicator_.Abort(absl::StrCat("load checkpoint: ", status.message()));
    }
    return status;
  }
  latest_ = found.path;
  return std::move(found.state);
}

}  // namespace ddp
