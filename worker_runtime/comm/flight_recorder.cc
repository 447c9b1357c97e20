#include "worker_runtime/comm/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/durable_file.h"

namespace ddp::internal {
namespace {

const char* Name(FlightState state) {
  switch (state) {
    case FlightState::kQueued:
      return "queued";
    case FlightState::kEnqueued:
      return "enqueued";
    case FlightState::kDone:
      return "done";
    case FlightState::kFailed:
      return "failed";
    case FlightState::kCaptured:
      return "captured";
    case FlightState::kReplayed:
      return "replayed";
  }
  return "?";
}

int64_t Nanoseconds(Clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

void AppendTime(std::string* json, const char* name, int64_t time) {
  if (time != 0) absl::StrAppend(json, ", \"", name, "\": ", time);
}

std::string DumpDirectory() {
  for (const char* name : {"DDPRUN_FLIGHT_RECORDER_DIR", "TMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && value[0] != '\0') return value;
  }
  return "/tmp";
}

}  // namespace

// Read by other processes, too: change kVersion with the layout.
struct FlightRecorder::Entry {
  std::atomic<uint64_t> sequence;  // 0: never used
  std::atomic<uint64_t> count;
  std::atomic<int64_t> queued, enqueued, started, ended;
  std::atomic<int32_t> root;
  std::atomic<OpKind> kind;
  std::atomic<DType> dtype;
  std::atomic<ReduceOp> reduce;
  std::atomic<FlightState> state;
};

struct FlightRecorder::Shared {
  static constexpr uint64_t kMagic = 0x6464702d666c6774;  // "ddp-flgt"
  static constexpr uint32_t kVersion = 1;
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int32_t world_size;
  uint32_t entry_count;
  std::atomic<uint64_t> last_sequence;
  Entry entries[kEntries];
};

absl::StatusOr<std::unique_ptr<FlightRecorder>> FlightRecorder::Create(int rank, int world_size,
                                                                       const std::string& group) {
  ddprun::UniqueFd file(memfd_create("ddp-flight-recorder", MFD_CLOEXEC));
  void* memory = MAP_FAILED;
  if (file.is_open() && ftruncate(file.get(), sizeof(Shared)) == 0) {
    memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  if (memory == MAP_FAILED) {
    const int error = errno;
    return absl::ErrnoToStatus(
        error, absl::StrCat("make the flight recorder of ", sizeof(Shared), " bytes"));
  }
  Shared* shared = new (memory) Shared();
  shared->magic = Shared::kMagic;
  shared->version = Shared::kVersion;
  shared->rank = rank;
  shared->world_size = world_size;
  shared->entry_count = kEntries;
  return std::unique_ptr<FlightRecorder>(
      new FlightRecorder(std::move(file), shared, rank, world_size, group));
}

FlightRecorder::~FlightRecorder() { munmap(shared_, sizeof(Shared)); }

FlightRecorder::Entry* FlightRecorder::Find(uint64_t sequence) const {
  Entry& entry = shared_->entries[sequence % kEntries];
  return entry.sequence == sequence ? &entry : nullptr;
}

void FlightRecorder::Queued(const Op& op) {
  Entry& entry = shared_->entries[op.sequence % kEntries];
  entry.sequence = 0;
  entry.count = op.count;
  entry.root = op.root;
  entry.kind = op.kind;
  entry.dtype = op.dtype;
  entry.reduce = op.reduce;
  entry.state = FlightState::kQueued;
  entry.queued = Nanoseconds(Clock::now());
  entry.enqueued = entry.started = entry.ended = 0;
  entry.sequence = op.sequence;
  shared_->last_sequence = op.sequence;
}

void FlightRecorder::Changed(uint64_t sequence, FlightState state, Clock::time_point at) {
  Entry* entry = Find(sequence);
  if (entry == nullptr) return;
  if (state == FlightState::kEnqueued) entry->enqueued = Nanoseconds(at);
  if (state == FlightState::kFailed) entry->ended = Nanoseconds(at);
  entry->state = state;
}

void FlightRecorder::Ran(uint64_t sequence, Clock::time_point started, Clock::time_point ended) {
  Entry* entry = Find(sequence);
  if (entry == nullptr) return;
  entry->started = Nanoseconds(started);
  entry->ended = Nanoseconds(ended);
  entry->state = entry->kind == OpKind::kReplay ? FlightState::kReplayed : FlightState::kDone;
}

void FlightRecorder::Forget(uint64_t last) {
  for (Entry& entry : shared_->entries) {
    if (entry.sequence > last) entry.sequence = 0;
  }
  shared_->last_sequence = last;
}

std::string FlightRecorder::ToJson() const {
  std::string json = absl::StrCat("{\"rank\": ", rank_, ", \"world_size\": ", world_size_,
                                  ", \"group\": \"", group_, "\", \"entries\": [");
  const uint64_t last = shared_->last_sequence;
  const uint64_t first = last >= kEntries ? last - kEntries + 1 : 1;
  const char* separator = "\n  ";
  for (uint64_t sequence = first; sequence <= last; ++sequence) {
    const Entry* entry = Find(sequence);
    if (entry == nullptr) continue;
    Op op;
    op.kind = entry->kind;
    op.dtype = entry->dtype;
    op.reduce = entry->reduce;
    op.root = entry->root;
    op.count = entry->count;
    const FlightState state = entry->state;
    const int64_t queued = entry->queued, enqueued = entry->enqueued;
    const int64_t started = entry->started, ended = entry->ended;
    // A newer operation that takes the place sets the number to 0 before all else.
    if (entry->sequence != sequence) continue;
    absl::StrAppend(&json, separator, "{\"sequence\": ", sequence, ", \"op\": \"", Describe(op),
                    "\", \"state\": \"", Name(state), "\"");
    AppendTime(&json, "queued_ns", queued);
    AppendTime(&json, "enqueued_ns", enqueued);
    AppendTime(&json, "started_ns", started);
    AppendTime(&json, "ended_ns", ended);
    absl::StrAppend(&json, "}");
    separator = ",\n  ";
  }
  absl::StrAppend(&json, "\n]}\n");
  return json;
}

absl::StatusOr<std::string> FlightRecorder::Dump() const { return Write(rank_, ToJson()); }

absl::StatusOr<std::string> FlightRecorder::Write(int rank, const std::string& json) {
  const std::string path =
      absl::StrCat(DumpDirectory(), "/ddp-flight-", rank, "-", getpid(), ".json");
  // A dump of this process may stand there already; a link that somebody put there is not followed.
  unlink(path.c_str());
  const ddprun::UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return ddprun::FileError("write", path);
  if (absl::Status status = ddprun::WriteAll(file.get(), json, path); !status.ok()) return status;
  return path;
}

}  // namespace ddp::internal
