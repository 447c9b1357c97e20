// The life of a communicator: joining, errors, waiting, stopping.
#include "tests/gpu_double/nccl_comm.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_encryption.h"

namespace ddprun::gpu_double {
namespace {

int NextId() {
  Comms& comms = Comms::Get();
  std::lock_guard<std::mutex> lock(comms.mutex);
  return comms.next_id++;
}

// The first version that lets ranks share a GPU where they ask for it.
constexpr int kFirstThatShares = 23003;

// What makes two ranks share a GPU: NCCL compares a host's hash and the bus, which slices (MIG) of
// a GPU have in common. From 2.30.7 on it compares UUIDs, but by the older cuDeviceGetUuid, which
// gives those of whole GPUs.
std::string HostAndGpu(int device) {
  char name[64] = {};
  gethostname(name, sizeof name - 1);
  const std::string host = TextSetting("NCCL_HOSTID", TextSetting("DDPRUN_DOUBLE_HOST", name));
  return host + " " + DeviceBusId(device);
}

// Whether this rank lets others have its GPU: each looks for itself.
bool MayShareGpu() {
  int version = 0;
  ncclGetVersion(&version);
  return version >= kFirstThatShares && NumberSetting("NCCL_MULTI_RANK_GPU_ENABLE", 0) != 0;
}

}  // namespace

Comm::Comm(int world_size, int rank, int device)
    : world_size(world_size), rank(rank), device(device), faults(Faults::Of(rank)), id(NextId()) {}

void Comm::Join(const NcclUniqueId& unique_id) {
  if (faults.never_joins) return Stall();
  std::string text;
  if (const NcclResult ready = CheckEncryption(faults, &text); ready != kNcclSuccess) {
    return SetError(ready, text);
  }
  {
    std::lock_guard<std::mutex> lock(running);
    group = SharedGroup::Open(unique_id, &text);
  }
  if (group == nullptr) return SetError(kNcclSystemError, text);
  Seat& seat = group->seat(rank);
  int32_t nobody = 0;
  if (!seat.pid.compare_exchange_strong(nobody, -1)) {
    return SetError(kNcclInvalidUsage, "rank " + std::to_string(rank) + " is taken");
  }
  seat.world_size = world_size;
  std::snprintf(seat.gpu, sizeof seat.gpu, "%s", HostAndGpu(device).c_str());
  seat.key = HashOfKey();
  seat.pid.store(getpid());
  group->Ring();
  const bool are_all_here = Await([this] {
    for (int peer = 0; peer < world_size; ++peer) {
      if (group->seat(peer).pid.load() <= 0) return false;
    }
    return true;
  });
  if (!are_all_here) return;
  group->Unlink();
  const NcclResult result = CheckPeers(&text);
  if (result != kNcclSuccess) return SetError(result, text);
  if (faults.init_hangs) return Stall();
  Log("nccl comm=%d rank=%d joined", id, rank);
}

NcclResult Comm::CheckPeers(std::string* text) {
  for (int peer = 0; peer < world_size; ++peer) {
    const Seat& seat = group->seat(peer);
    if (seat.world_size != world_size) {
      *text = "rank " + std::to_string(peer) + " has world size " +
              std::to_string(seat.world_size) + ", rank " + std::to_string(rank) + " has " +
              std::to_string(world_size);
      return kNcclInvalidUsage;
    }
    if (seat.key != group->seat(rank).key) {
      *text = "ncclCrypt: TLS handshake with rank " + std::to_string(peer) + " failed";
      return kNcclRemoteError;
    }
    for (int other = 0; other < peer; ++other) {
      if (std::string(seat.gpu) != group->seat(other).gpu || MayShareGpu()) continue;
      *text = "Duplicate GPU detected : rank " + std::to_string(other) + " and rank " +
              std::to_string(peer) + " both on CUDA device " + seat.gpu;
      return kNcclInvalidUsage;
    }
  }
  return kNcclSuccess;
}

NcclResult Comm::CheckReady() {
  std::lock_guard<std::mutex> lock(mutex);
  if (error_ != kNcclSuccess) return Refuse(error_, error_text_);
  return is_finalized ? Refuse(kNcclInvalidUsage, "the communicator was finalized") : kNcclSuccess;
}

NcclResult Comm::AsyncError() {
  std::lock_guard<std::mutex> lock(mutex);
  return error_;
}

std::string Comm::ErrorText() {
  std::lock_guard<std::mutex> lock(mutex);
  return error_text_;
}

void Comm::SetError(NcclResult error, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex);
  if (error_ != kNcclSuccess) return;
  Log("nccl comm=%d rank=%d error=%d %s", id, rank, error, text.c_str());
  error_ = error;
  error_text_ = text;
  changed.notify_all();
}

void Comm::Stop() {
  std::lock_guard<std::mutex> lock(mutex);
  must_stop_ = true;
  changed.notify_all();
}

bool Comm::Sleep(long milliseconds) {
  std::unique_lock<std::mutex> lock(mutex);
  return !changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                           [this] { return must_stop(); });
}

void Comm::Stall() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return must_stop(); });
}

bool Comm::CallHangs() {
  if (faults.call_hangs != ++calls_) return false;
  Log("nccl comm=%d rank=%d call hangs", id, rank);
  Stall();
  return true;
}

bool Comm::Await(const SharedGroup::Condition& condition) {
  int dead = -1;
  const auto stop = [&] {
    for (int peer = 0; faults.notices_dead_peers && peer < world_size; ++peer) {
      const int pid = group->seat(peer).pid.load();
      if (pid > 0 && IsDead(pid)) dead = peer;
    }
    return must_stop() || dead >= 0;
  };
  if (group->WaitFor(condition, stop)) return true;
  if (dead >= 0) {
    // What it did before it died has come.
    if (!must_stop() && condition()) return true;
    SetError(kNcclRemoteError, "socket closed by remote peer: rank " + std::to_string(dead));
    Stall();
  }
  return false;
}

bool Comm::AwaitDrained() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return must_stop() || operations == 0; });
  return !must_stop();
}

void Comm::AwaitUnheld() {
  std::unique_lock<std::mutex> lock(mutex);
  if (held_operations == 0) return;
  Log("nccl comm=%d rank=%d waits for graphs operations=%d", id, rank, held_operations);
  changed.wait(lock, [this] { return held_operations == 0; });
}

Comms& Comms::Get() {
  static Comms& comms = *new Comms();
  return comms;
}

}  // namespace ddprun::gpu_double
