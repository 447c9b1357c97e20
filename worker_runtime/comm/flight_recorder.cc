#include "worker_runtime/comm/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/counters.h"

namespace ddp::internal {
namespace {

const char* Name(FlightState state) {
  switch (state) {
    case FlightState::kQueued:
      return "queued";
    case FlightState::kEnqueued:
      return "enqueued";
    case FlightState::kRunning:
      return "running";
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

// "2025-01-31T12:00:00.123Z"
std::string UtcNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[32];
  const size_t size = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return absl::StrCat(absl::string_view(text, size), ".",
                      absl::Dec(now.tv_nsec / 1000000, absl::kZeroPad3), "Z");
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, HOST_NAME_MAX) == 0 ? absl::CHexEscape(name) : "";
}

bool HasEnded(FlightState state) {
  switch (state) {
    case FlightState::kQueued:
    case FlightState::kEnqueued:
    case FlightState::kRunning:
      return false;
    case FlightState::kDone:
    case FlightState::kFailed:
    case FlightState::kCaptured:
    case FlightState::kReplayed:
      return true;
  }
  return false;
}

static_assert(std::size(kCounterOpNames) == static_cast<size_t>(OpKind::kReplay) + 1);

GroupCounters* OpenCounters(int rank, int world_size, const std::string& group,
                            const GroupLabel& label) {
  Counters* const page = label.key == 0 ? nullptr : Counters::OfThisProcess();
  if (page == nullptr) return nullptr;
  const std::string name = absl::StrCat(group, ", ", label.ranks);
  return page->OpenGroup(KeyOf(label, group), name, rank, world_size);
}

// Of the recorders of this process: a program may have several groups.
std::atomic<int> next_number{0};

std::string DumpDirectory() {
  for (const char* name : {"DDPRUN_FLIGHT_RECORDER_DIR", "TMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && value[0] != '\0') return value;
  }
  return "/tmp";
}

}  // namespace

// A reader that finds a newer operation's value in a field finds 0 or its number afterwards, too:
// hence release and acquire, which are plain moves on x86.
struct FlightRecorder::Entry {
  template <typename T>
  class Field {
   public:
    void operator=(T value) { value_.store(value, std::memory_order_release); }
    operator T() const { return value_.load(std::memory_order_acquire); }

   private:
    std::atomic<T> value_{};
  };
  Field<uint64_t> sequence;  // 0: none
  Field<uint64_t> count;
  Field<int64_t> queued, enqueued, started, ended;
  Field<int32_t> root;
  Field<OpKind> kind;
  Field<DType> dtype;
  Field<ReduceOp> reduce;
  Field<FlightState> state;

  // A replay stands for the numbers of all that is in its graph.
  uint64_t last_number() const {
    const uint64_t others = kind == OpKind::kReplay && count > 0 ? count - 1 : 0;
    return sequence + others;
  }
};

FlightRecorder::FlightRecorder(int rank, int world_size, std::string group, const GroupLabel& label)
    : rank_(rank),
      world_size_(world_size),
      group_(std::move(group)),
      number_(next_number.fetch_add(1, std::memory_order_relaxed)),
      entries_(std::make_unique<Entry[]>(kEntries)),
      counters_(OpenCounters(rank, world_size, group_, label)) {}

FlightRecorder::~FlightRecorder() {
  if (counters_ != nullptr) counters_->Close();
}

FlightRecorder::Entry* FlightRecorder::Find(uint64_t sequence) const {
  Entry& entry = entries_[sequence % kEntries];
  return entry.sequence == sequence ? &entry : nullptr;
}

void FlightRecorder::Queued(const Op& op, Clock::time_point at, bool is_captured) {
  Entry& entry = entries_[op.sequence % kEntries];
  entry.sequence = 0;
  entry.count = op.count;
  entry.root = op.root;
  entry.kind = op.kind;
  entry.dtype = op.dtype;
  entry.reduce = op.reduce;
  entry.state = FlightState::kQueued;
  entry.queued = Nanoseconds(at);
  entry.enqueued = 0;
  entry.started = 0;
  entry.ended = 0;
  entry.sequence = op.sequence;
  last_sequence_.store(op.sequence, std::memory_order_release);
  if (counters_ == nullptr || is_captured) return;
  last_called_ = op.sequence;
  counters_->Called(op.sequence, static_cast<int>(op.kind), at);
  // A capture lies between this and the last, and its numbers are not given again.
  if (op.sequence > last_ended_ + 1) CountEnded(last_ended_, at);
}

// Those behind it whose end was told before its own end with it: at the end of the group, where
// what waits in the queue fails before what runs does, and where they were captured.
void FlightRecorder::CountEnded(uint64_t sequence, Clock::time_point at) {
  if (counters_ == nullptr) return;
  const uint64_t before = last_ended_;
  if (sequence > last_ended_) {
    const Entry* entry = Find(sequence);
    last_ended_ = entry == nullptr ? sequence : entry->last_number();
  }
  while (last_ended_ < last_called_) {
    const Entry* next = Find(last_ended_ + 1);
    if (next == nullptr || !HasEnded(next->state)) break;
    last_ended_ = next->last_number();
  }
  if (last_ended_ != before) counters_->Done(last_ended_, at);
}

void FlightRecorder::Changed(uint64_t sequence, FlightState state, Clock::time_point at) {
  if (Entry* entry = Find(sequence); entry != nullptr) {
    if (state == FlightState::kEnqueued) entry->enqueued = Nanoseconds(at);
    if (state == FlightState::kRunning) entry->started = Nanoseconds(at);
    if (state == FlightState::kFailed) entry->ended = Nanoseconds(at);
    entry->state = state;
  }
  if (state == FlightState::kFailed && sequence == last_ended_ + 1 && sequence <= last_called_) {
    CountEnded(sequence, at);
  }
}

void FlightRecorder::Ran(uint64_t sequence, Clock::time_point started, Clock::time_point ended) {
  if (Entry* entry = Find(sequence); entry != nullptr) {
    entry->started = Nanoseconds(started);
    entry->ended = Nanoseconds(ended);
    entry->state = entry->kind == OpKind::kReplay ? FlightState::kReplayed : FlightState::kDone;
  }
  CountEnded(sequence, ended);
}

void FlightRecorder::Forget(uint64_t last) {
  for (size_t i = 0; i < kEntries; ++i) {
    if (entries_[i].sequence > last) entries_[i].sequence = 0;
  }
  last_sequence_.store(last, std::memory_order_release);
}

std::string FlightRecorder::ToJson() const {
  std::string json = absl::StrCat(
      "{\"rank\": ", rank_, ", \"world_size\": ", world_size_, ", \"group\": \"", group_,
      "\", \"host\": \"", HostName(), "\", \"pid\": ", getpid(), ", \"time\": \"", UtcNow(),
      "\", \"time_ns\": ", Nanoseconds(Clock::now()), ", \"entries\": [");
  const uint64_t last = last_sequence_.load(std::memory_order_acquire);
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

std::string FlightRecorder::Path() const {
  return absl::StrCat(DumpDirectory(), "/ddp-flight-", rank_, "-", getpid(), "-", number_, ".json");
}

absl::StatusOr<std::string> FlightRecorder::Write(const std::string& path,
                                                  const std::string& json) {
  // An earlier dump may stand there; a link that somebody put there is not followed.
  unlink(path.c_str());
  const ddprun::UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return ddprun::FileError("write", path);
  if (absl::Status status = ddprun::WriteAll(file.get(), json, path); !status.ok()) return status;
  return path;
}

}  // namespace ddp::internal
