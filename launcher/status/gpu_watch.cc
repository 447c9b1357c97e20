// The thread of gpu_facts.h.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/status/gpu_facts.h"
#include "launcher/status/gpu_words.h"
#include "launcher/status/nvml_api.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr unsigned kMostGpus = 64;
constexpr unsigned kMostProcesses = 1024;  // of a GPU
constexpr size_t kMostXids = 16;           // of a GPU
constexpr int kMostEvents = 256;           // between two looks
constexpr std::chrono::milliseconds kFarewell{100};

// What the thread alone knows of one GPU.
struct Gpu {
  NvmlDevice device = nullptr;
  std::string name;
  std::vector<int> xids;
};

// Everything that calls the library, on the thread.
class Library {
 public:
  // Empty, or why there is nothing to look at.
  std::string Open(const std::string& path) {
    const absl::StatusOr<NvmlApi> loaded = LoadNvml(path);
    if (!loaded.ok()) return std::string(loaded.status().message());
    api_ = *loaded;
    if (const int result = api_.init(); result != kNvmlSuccess) {
      return absl::StrCat("nvmlInit: nvmlReturn_t ", result);
    }
    unsigned count = 0;
    if (const int result = api_.count(&count); result != kNvmlSuccess) {
      return absl::StrCat("nvmlDeviceGetCount: nvmlReturn_t ", result);
    }
    gpus_.resize(std::min(count, kMostGpus));
    for (unsigned i = 0; i < gpus_.size(); ++i) {
      // One that is lost keeps its place.
      if (api_.find(i, &gpus_[i].device) != kNvmlSuccess) gpus_[i].device = nullptr;
      char name[96] = {};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
      if (gpus_[i].device != nullptr && api_.name(gpus_[i].device, name, sizeof(name)) == 0) {
        name[sizeof(name) - 1] = '\0';
        gpus_[i].name = EscapeControl(name);
      }
    }
    ListenForXids();
    return "";
  }

  bool is_empty() const { return gpus_.empty(); }

  std::vector<GpuFacts> Look() {
    TakeXids();
    std::vector<GpuFacts> facts;
    for (size_t i = 0; i < gpus_.size(); ++i) facts.push_back(LookAt(static_cast<int>(i)));
    return facts;
  }

 private:
  void ListenForXids() {
    if (api_.make_events == nullptr || api_.register_events == nullptr || api_.wait == nullptr ||
        api_.make_events(&events_) != kNvmlSuccess) {
      events_ = nullptr;
      return;
    }
    for (const Gpu& gpu : gpus_) {
      // Parts of GPUs (MIG) and old ones have no such events.
      if (gpu.device != nullptr) api_.register_events(gpu.device, kNvmlXidEvent, events_);
    }
  }

  // The driver keeps the events until somebody asks, so that nobody has to wait for them.
  void TakeXids() {
    for (int i = 0; events_ != nullptr && i < kMostEvents; ++i) {
      NvmlEvent event{};
      if (api_.wait(events_, &event, 0) != kNvmlSuccess) return;
      Gpu* gpu = event.type == kNvmlXidEvent ? Find(event.device) : nullptr;
      if (gpu == nullptr || event.data > 100'000) continue;
      std::vector<int>& xids = gpu->xids;
      const int xid = static_cast<int>(event.data);
      const bool is_new = std::find(xids.begin(), xids.end(), xid) == xids.end();
      if (is_new && xids.size() < kMostXids) xids.push_back(xid);
    }
  }

  Gpu* Find(NvmlDevice device) {
    // A GPU that is lost does not tell its index.
    for (Gpu& gpu : gpus_) {
      if (gpu.device == device) return &gpu;
    }
    unsigned index = 0;
    const bool is_told = api_.index != nullptr && api_.index(device, &index) == kNvmlSuccess;
    return is_told && index < gpus_.size() ? &gpus_[index] : nullptr;
  }

  GpuFacts LookAt(int index) {
    const Gpu& gpu = gpus_[static_cast<size_t>(index)];
    GpuFacts facts{.view = {.index = index, .name = gpu.name, .xids = gpu.xids}};
    facts.is_lost = gpu.device == nullptr;
    // Whether the library has the function and it succeeds.
    const auto ask = [&](auto* function, auto... arguments) {
      if (function == nullptr || facts.is_lost) return false;
      const int result = function(gpu.device, arguments...);
      facts.is_lost = result == kNvmlGpuIsLost;
      return result == kNvmlSuccess;
    };
    NvmlUtilisation utilisation{};
    if (ask(api_.utilisation, &utilisation)) facts.view.utilisation = utilisation.gpu / 100.0;
    NvmlMemory memory{};
    if (ask(api_.memory, &memory)) {
      facts.view.memory_used = static_cast<int64_t>(memory.used);
      facts.view.memory_total = static_cast<int64_t>(memory.total);
    }
    unsigned celsius = 0;
    if (ask(api_.temperature, kNvmlGpuTemperature, &celsius)) {
      facts.view.temperature = static_cast<int>(celsius);
    }
    unsigned long long reasons = 0;
    if (ask(api_.clock_reasons, &reasons)) {
      facts.throttle_reasons = reasons;
      facts.view.throttle = ThrottleText(reasons);
    }
    if (!facts.is_lost) facts.uses = Uses(gpu.device);
    return facts;
  }

  std::vector<GpuFacts::Use> Uses(NvmlDevice device) {
    std::vector<GpuFacts::Use> uses;
    for (unsigned room = 64; api_.processes != nullptr && room <= kMostProcesses; room *= 4) {
      std::vector<NvmlProcess> processes(room);
      unsigned count = room;
      const int result = api_.processes(device, &count, processes.data());
      if (result == kNvmlInsufficientSize) continue;
      if (result == kNvmlSuccess) processes.resize(std::min(count, room));
      if (result != kNvmlSuccess) processes.clear();
      for (const NvmlProcess& process : processes) {
        GpuFacts::Use use{.pid = static_cast<int>(process.pid)};
        if (process.used_memory != kNvmlNotAvailable) {
          use.memory = static_cast<int64_t>(process.used_memory);
        }
        uses.push_back(use);
      }
      break;
    }
    return uses;
  }

  NvmlApi api_{};
  NvmlEventSet events_ = nullptr;
  std::vector<Gpu> gpus_;
};

std::string LibraryName(const GpuWatch::Options& options) {
  if (!options.library.empty()) return options.library;
  const char* given = std::getenv("DDPRUN_NVML_LIB");
  return given != nullptr && *given != '\0' ? given : "libnvidia-ml.so.1";
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

// Owned by the watch and its thread, whichever lives longer.
struct GpuWatch::Shared {
  const Options options;
  const std::string library;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by it, all below.
  bool is_to_end = false;
  bool has_ended = false;
  std::optional<TimePoint> call_began;  // the library has been called and has not returned
  std::vector<GpuFacts> gpus;
  std::string error;
};

void GpuWatch::Run(const std::shared_ptr<Shared>& shared) {
  Library library;
  const auto begin = [&] {
    const std::lock_guard lock(shared->mutex);
    shared->call_began = SteadyNow();
  };
  begin();
  std::string error = library.Open(shared->library);
  while (error.empty() && !library.is_empty()) {
    begin();
    std::vector<GpuFacts> gpus = library.Look();
    std::unique_lock lock(shared->mutex);
    shared->call_began.reset();
    shared->gpus = std::move(gpus);
    shared->changed.notify_all();
    shared->changed.wait_for(lock, shared->options.every, [&] { return shared->is_to_end; });
    if (shared->is_to_end) break;
  }
  const std::lock_guard lock(shared->mutex);
  shared->call_began.reset();
  shared->error = std::move(error);
  shared->has_ended = true;
  shared->changed.notify_all();
}

GpuWatch::GpuWatch(Options options) {
  const bool has_driver =
      std::any_of(options.device_files.begin(), options.device_files.end(),
                  [](const std::string& file) { return access(file.c_str(), F_OK) == 0; });
  if (!has_driver) return;
  std::string library = LibraryName(options);
  shared_.reset(new Shared{.options = std::move(options), .library = std::move(library)});
  std::thread thread = StartQuietThread([shared = shared_] { Run(shared); });
  if (thread.joinable()) {
    thread.detach();
  } else {
    shared_.reset();
  }
}

void GpuWatch::End() {
  if (shared_ == nullptr) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->is_to_end = true;
  shared_->changed.notify_all();
}

bool GpuWatch::is_idle() const {
  if (shared_ == nullptr) return true;
  const std::lock_guard lock(shared_->mutex);
  return shared_->has_ended || (shared_->is_to_end && !shared_->call_began);
}

GpuWatch::~GpuWatch() {
  if (shared_ == nullptr) return;
  End();
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, kFarewell, [&] { return shared_->has_ended; });
}

GpuReading GpuWatch::Read(TimePoint now) const {
  if (shared_ == nullptr) return {};
  const std::lock_guard lock(shared_->mutex);
  GpuReading reading{.gpus = shared_->gpus, .error = shared_->error};
  const Duration patience = shared_->options.patience;
  const bool is_hanging = shared_->call_began && now - *shared_->call_began > patience;
  if (is_hanging) reading.hang_s = Seconds(now - *shared_->call_began);
  if (!is_hanging) return reading;
  for (GpuFacts& gpu : reading.gpus) {
    // What changes from one look to the next is not known any more.
    gpu = {.view = {.index = gpu.view.index, .name = gpu.view.name, .xids = gpu.view.xids},
           .is_lost = gpu.is_lost,
           .uses = gpu.uses};
  }
  return reading;
}

}  // namespace ddprun::launcher
