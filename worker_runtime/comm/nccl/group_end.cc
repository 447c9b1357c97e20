// The part of Watchdog that ends a group.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/nccl/side_thread.h"
#include "worker_runtime/comm/nccl/watchdog.h"

namespace ddp::internal {
namespace {

using Milliseconds = std::chrono::milliseconds;

// How long the reason of another rank's abort may take to be read.
constexpr Milliseconds kExplainPatience(500);
// An abort takes milliseconds, and a call of NCCL microseconds, unless it waits for a peer.
constexpr std::chrono::seconds kAbortPatience(2);
constexpr Milliseconds kCallPatience(200);
// How long the flight recorder's dump may take, which comes before the abort.
constexpr Milliseconds kDumpPatience(400);
// A claim of the survey is a question to the store.
constexpr Milliseconds kClaim(200);
// Ranks must be out of a broken group within 5 s of the failure.
static_assert(Watchdog::kAnswer + kClaim + kVerdictPatience + kDumpPatience + kAbortPatience <
              std::chrono::seconds(5));
static_assert(kExplainPatience + LeftPeerNote::kPatience + kAbortPatience <
              std::chrono::seconds(5));
// How long the end of a group may take while all is well: what is under way, then NCCL's own.
constexpr std::chrono::seconds kDrain(5);
constexpr std::chrono::seconds kFinalize(30);
// How often an end in order looks whether another rank has ended the group.
constexpr Milliseconds kLook(20);

std::string AbortedBy(int rank) { return absl::StrCat("aborted by rank ", rank, ": "); }

void DestroyGraphs(const CudaApi& api, const Graphs& graphs) {
  for (const auto& graph : graphs) graph->Destroy(api);
}

// What this rank found, for the others, who read it as well.
absl::Status FoundBy(int rank, const absl::Status& status) {
  const absl::Status named(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
  // A timeout has another cause, and so may have what NCCL calls unavailable: a remote end.
  const bool is_own = !absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status);
  return is_own ? WithLeftPeer(named, rank) : named;
}

}  // namespace

void Watchdog::Fail(absl::Status status, KnownTo known_to) {
  const int rank = group_.host.rank();
  if (!group_.queue.error().ok()) return;
  const std::lock_guard failing(fail_mutex_);
  if (!group_.queue.error().ok()) return;
  absl::Status said;
  if (known_to == KnownTo::kHost && absl::IsAborted(status) && group_.board != nullptr) {
    said = group_.board->Read(kExplainPatience);
  }
  if (known_to == KnownTo::kThisRank && group_.board != nullptr) status = FoundBy(rank, status);
  // The first word on the group's end, of whichever rank, so that all say the same.
  if (!said.ok()) {
    status = said;
  } else if (group_.board != nullptr) {
    status = group_.board->Publish(status);
  }
  const std::optional<int> left_peer = LeftPeerOf(status);
  status = group_.host.Told(std::move(status));
  // The others', too, who read it: what each rank called tells more.
  if (absl::IsDeadlineExceeded(status)) status = WithDump(status);
  if (!group_.queue.End(status)) return;  // the group was shut down meanwhile
  {
    const std::lock_guard lock(mutex_);
    must_look_ = true;
  }
  changed_.notify_all();
  // The others hear it within moments, wherever they are. That it was this rank's abort is added.
  group_.host.AbortFor(std::string(absl::StripPrefix(status.message(), AbortedBy(rank))),
                       left_peer);
}

void Watchdog::Abort(const std::string& reason) {
  const int rank = group_.host.rank();
  Fail(WithLeftPeer(absl::AbortedError(absl::StrCat(AbortedBy(rank), reason)), rank),
       KnownTo::kAll);
}

// The record is written without a lock: a disk may be slow, or what hangs the job may be the file
// system that the dump goes to.
absl::Status Watchdog::WithDump(const absl::Status& status) {
  auto written =
      OnThread([path = group_.queue.recorder().Path(), json = group_.queue.RecordFailure()] {
        return FlightRecorder::Write(path, json);
      });
  if (written.wait_for(kDumpPatience) != std::future_status::ready) return status;
  const absl::StatusOr<std::string> path = written.get();
  if (!path.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; the last operations of rank ",
                                   group_.host.rank(), " are in ", *path));
}

// NCCL's abort may hang as its operations do, on a thread that nobody can end. So may the driver,
// and with it whatever thread of the program asks for something next.
// REQUIRES: the watchdog's thread, or there is none.
void Watchdog::AbortCommunication() {
  const Clock::time_point deadline = Clock::now() + kAbortPatience;
  const auto is_aborted = OnThread([group = &group_] {
    if (group->communication == nullptr) return;
    // What cannot be made current has failed, and runs nothing that an abort would end.
    if (!group->device.MakeCurrent().ok()) return;
    const auto destroy_graphs = [group] {
      DestroyGraphs(group->device.api(), group->graphs.TakeGraphs());
    };
    std::unique_lock nccl = group->queue.TryLockNccl(kCallPatience);
    while (!nccl.owns_lock() && !group->queue.is_in_nccl()) {
      nccl = group->queue.TryLockNccl(kCallPatience);
    }
    if (nccl.owns_lock()) {
      destroy_graphs();
      return group->communication->Abort();
    }
    // A call waits in NCCL for a peer. The abort ends it, and waits for the graphs itself.
    const auto aborted = OnThread([group] {
      if (group->device.MakeCurrent().ok()) group->communication->Abort();
    });
    {
      const std::lock_guard held(group->queue.nccl_mutex());
      destroy_graphs();
    }
    aborted.wait();
  });
  const char* hanging = nullptr;
  // The driver has kAnswer left in any case.
  if (is_aborted.wait_until(deadline - kAnswer) != std::future_status::ready) {
    hanging = "NCCL did not abort";
  } else if (asker_.Run(deadline - Clock::now()) > Clock::duration::zero()) {
    hanging = "the driver of its GPU did not answer";
  } else if (!group_.queue.AwaitTurn(std::max(deadline, Clock::now() + kAnswer))) {
    hanging = "a call of its GPU's driver did not return";
  }
  if (hanging != nullptr) {
    group_.on_hopeless(
        absl::StrCat("rank ", group_.host.rank(), ": ", hanging, " within 2 s of a failure (",
                     std::string(group_.queue.error().message()), "): the process ends"));
  }
  Set(Ending::kAborted);
}

void Watchdog::Set(Ending ending) {
  const std::lock_guard lock(mutex_);
  ending_ = ending;
  changed_.notify_all();
}

Watchdog::Ending Watchdog::ending() const {
  const std::lock_guard lock(mutex_);
  return ending_;
}

Watchdog::Ending Watchdog::End() {
  LaunchQueue& queue = group_.queue;
  if (!thread_.joinable()) {
    if (ending() == Ending::kNone) AbortCommunication();  // it never started
    return ending();
  }
  const Clock::time_point deadline = Clock::now() + kDrain;
  while (!queue.AwaitIdle(Milliseconds(1))) {
    if (Clock::now() >= deadline) {
      Abort("the communicator was destroyed with work under way");
      break;
    }
    // The driver may not answer: it is not for this thread to ask.
    const std::lock_guard lock(mutex_);
    must_look_ = true;
    changed_.notify_all();
  }
  // The watchdog may not have seen it yet; NCCL's end would wait for who aborted.
  if (absl::Status trouble = group_.host.MarkedError(); !trouble.ok()) {
    Fail(OfFirst(trouble), KnownTo::kHost);
  }
  {
    std::unique_lock lock(mutex_);
    // Otherwise the watchdog aborts, or ends the process.
    if (!queue.Close()) changed_.wait(lock, [this] { return ending_ != Ending::kNone; });
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!asker_.Stop(kAbortPatience)) {
    group_.on_hopeless(absl::StrCat("rank ", group_.host.rank(),
                                    ": the driver of its GPU did not answer at the end of the "
                                    "group: the process ends"));
  }
  if (ending() == Ending::kNone) FinalizeCommunication();
  return ending();
}

// All work is done, so a hang of NCCL is no reason to fail: it is left to itself. So is its wait
// for a rank that aborts now.
void Watchdog::FinalizeCommunication() {
  if (group_.communication == nullptr) return Set(Ending::kOrderly);
  auto is_ended = OnThread([device = &group_.device, communication = group_.communication,
                            graphs = group_.graphs.TakeGraphs()] {
    absl::Status current = device->MakeCurrent();
    if (!current.ok()) return current;
    DestroyGraphs(device->api(), graphs);
    communication->Finalize().IgnoreError();
    return current;
  });
  const Clock::time_point begin = Clock::now();
  Clock::time_point deadline = begin + std::min<Milliseconds>(group_.queue.timeout(), kFinalize);
  bool is_interrupted = false;
  while (is_ended.wait_for(kLook) != std::future_status::ready) {
    if (!is_interrupted && !group_.host.error().ok()) {
      is_interrupted = true;
      deadline = std::min(deadline, Clock::now() + kAbortPatience);
    }
    if (Clock::now() < deadline) continue;
    const auto waited = std::chrono::round<std::chrono::seconds>(Clock::now() - begin);
    std::fprintf(stderr,
                 "ddp: rank %d: NCCL did not end within %s of the last operation%s; going on\n",
                 group_.host.rank(), NameDuration(waited).c_str(),
                 is_interrupted ? ", 2 s after another rank had ended the group" : "");
    return Set(Ending::kHanging);
  }
  const absl::Status current = is_ended.get();
  if (current.ok()) return Set(Ending::kOrderly);
  const std::string why =
      absl::StrCat("NCCL was not ended: ", absl::string_view(current.message()));
  std::fprintf(stderr, "ddp: rank %d: %s; going on\n", group_.host.rank(), why.c_str());
  // The others wait for this rank in NCCL's end.
  group_.host.AbortFor(why, std::nullopt);
  Set(Ending::kHanging);
}

void EndProcess(const std::string& why) {
  std::fprintf(stderr, "ddp: %s\n", why.c_str());
  _exit(EXIT_FAILURE);
}

}  // namespace ddp::internal
