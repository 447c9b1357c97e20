// How the GPUs of this node are, and which process uses which, by NVIDIA's management library, on a
// thread that may hang.
#ifndef DDPRUN_LAUNCHER_STATUS_GPU_FACTS_H_
#define DDPRUN_LAUNCHER_STATUS_GPU_FACTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/status/snapshot.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct GpuFacts {
  GpuView view;
  uint64_t throttle_reasons = 0;
  bool is_lost = false;  // the driver reaches it no more
  struct Use {
    int pid = 0;  // in the machine's pid namespace; newer drivers: in ours
    std::optional<int64_t> memory;
    friend bool operator==(const Use&, const Use&) = default;
  };
  std::vector<Use> uses;
  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

struct GpuReading {
  std::vector<GpuFacts> gpus;  // by NVML's index; while it hangs, without what may have changed
  // How long the library has not answered, when that is longer than it should be; 0: it does.
  double hang_s = 0;
  // Why there is nothing; for a log. Empty as well on a machine without GPUs.
  std::string error;
  friend bool operator==(const GpuReading&, const GpuReading&) = default;
};

// Looks every few seconds, on a thread of its own: the driver of a broken GPU may not return for
// ever. Without a GPU there is no thread. Any thread may ask; each call returns at once.
class GpuWatch {
 public:
  struct Options {
    Duration every = std::chrono::seconds(5);
    Duration patience = std::chrono::seconds(10);
    std::string library;  // empty: what DDPRUN_NVML_LIB names, else the system's
    // One of these is there where a driver is: of Linux, of Windows' Linux.
    std::vector<std::string> device_files = {"/dev/nvidiactl", "/dev/dxg"};
  };
  GpuWatch() : GpuWatch(Options()) {}
  explicit GpuWatch(Options options);
  // Waits a tenth of a second for a call under way, then leaves the thread behind, which owns what
  // it touches: the process is then to end by _exit. One that the kernel holds keeps even that
  // waiting.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  GpuReading Read(TimePoint now) const;
  // No further call begins.
  void End();
  // Whether no call is under way: only then may the process's own end run the library's.
  bool is_idle() const;
  bool has_thread() const { return shared_ != nullptr; }

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // the thread's too; null: no GPU, no thread
};

// Pure, all of these.

void FillNode(const GpuReading& reading, NodeView& node);

// `pids`: of the rank (ProcessSample::pids). Leaves alone what is not known; a rank on several GPUs
// has their mean and their memory together.
void FillRank(const GpuReading& reading, const std::vector<int>& pids, RankView& rank);

// Problems "gpu" and "throttling", each with the ranks whose processes use that GPU.
std::vector<Problem> GpuProblems(const GpuReading& reading,
                                 const std::map<int, int>& rank_of_pid = {});

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_GPU_FACTS_H_
