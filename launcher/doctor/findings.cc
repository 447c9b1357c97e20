// From facts to what is said of each, and what each lack means.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "launcher/doctor/cuda_verdict.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kMiB = 1024 * 1024;
constexpr uint64_t kGiB = 1024 * kMiB;
// Of /dev/shm: NCCL takes up to some 10 MiB for each pair of ranks on a node, 28 pairs with 8.
constexpr uint64_t kEnoughShm = kGiB;
// ddprun takes 64 and 8 for each worker; a worker of a large job has a socket for many a peer.
constexpr uint64_t kEnoughFiles = 4096;
// InfiniBand pins what it sends, and the buffers of one rank are of this order.
constexpr uint64_t kEnoughMemlock = kGiB;

// The NCCL of today's distributions and wheels is built for CUDA 12 or 13.
constexpr int kOldestCudaOfWheels = 12000;

std::string DriverText(const GpuReport& report) {
  switch (report.driver) {
    case DriverState::kUnknown:
      break;
    case DriverState::kMissing:
      return "not found";
    case DriverState::kUnusable:
      return "not usable";
    case DriverState::kOpened:
      return absl::StrCat(report.driver_file, ", CUDA ", CudaVersionText(report.cuda_version));
  }
  return "unknown";
}

void AddDriver(const DoctorFacts& facts, std::vector<Finding>& out) {
  const GpuReport& report = facts.gpu;
  const std::string& module = facts.host.driver.kernel_module;
  out.push_back({.subject = "driver",
                 .value = absl::StrCat(DriverText(report), module.empty() ? "" : ", kernel module ",
                                       module)});
  if (report.driver != DriverState::kOpened) {
    out.back().advice = WhyNoGpu(report, facts.host.driver).value_or("");
  } else if (report.cuda_version < kOldestCudaOfWheels && report.nccl_cuda_version == 0) {
    out.back().advice =
        "an NCCL built for CUDA 12 or 13 does not run on it: update the driver (525 or newer)";
  }
}

// CUDA_VISIBLE_DEVICES ends, for CUDA, at the first name that it does not know.
std::string AdviceOnVisible(const DoctorFacts& facts) {
  const std::optional<std::string>& given = facts.host.driver.visible_devices;
  if (!given) return "";
  const std::vector<std::string> names = absl::StrSplit(*given, ',');
  if (names.size() == facts.gpu.gpus.size()) return "";
  return absl::StrCat("CUDA_VISIBLE_DEVICES is ", Quoted(*given), ": CUDA stops reading it at the ",
                      "first GPU that is not there");
}

void AddGpus(const DoctorFacts& facts, std::vector<Finding>& out) {
  const GpuReport& report = facts.gpu;
  for (size_t index = 0; index < report.gpus.size(); ++index) {
    const Gpu& gpu = report.gpus[index];
    out.push_back(
        {.subject = absl::StrCat("gpu ", index),
         .value = absl::StrCat(gpu.name, ", ", BytesText(gpu.memory_bytes), ", compute capability ",
                               gpu.major, ".", gpu.minor, ", ", gpu.bus_id, ", ", gpu.uuid)});
  }
  if (report.gpus.empty()) out.push_back({.subject = "gpus", .value = "none"});
  if (report.driver != DriverState::kOpened) return;  // said of the driver
  const std::optional<std::string> why = WhyNoGpu(report, facts.host.driver);
  out.back().advice = why ? *why : AdviceOnVisible(facts);
}

// By its parts, as "2.9.6" is older than "2.30.3".
bool IsOlder(const std::string& version, const std::vector<int>& than) {
  std::vector<int> numbers;
  for (const auto& part : absl::StrSplit(version, '.')) {
    numbers.push_back(0);
    if (!absl::SimpleAtoi(part, &numbers.back())) return false;
  }
  return numbers < than;
}

// What NCCL makes of slices of one GPU; empty where there are none.
std::string LimitOfSlices(const GpuReport& report) {
  const bool has_slices = std::any_of(report.gpus.begin(), report.gpus.end(), [](const Gpu& gpu) {
    return absl::StartsWith(gpu.uuid, "MIG-");
  });
  if (!has_slices) return "";
  if (IsOlder(report.nccl_version, {2, 30, 3})) {
    return "it takes slices (MIG) of one GPU for the same GPU and refuses them in a group. Start "
           "one rank per physical GPU, or install NCCL 2.30.3 or newer and set "
           "NCCL_MULTI_RANK_GPU_ENABLE=1";
  }
  return "slices (MIG) of one GPU form a group only where all ranks set "
         "NCCL_MULTI_RANK_GPU_ENABLE=1";
}

void AddNccl(const GpuReport& report, std::vector<Finding>& out) {
  Finding finding{.subject = "nccl", .value = "not found"};
  if (const std::optional<std::string> why = WhyNoNccl(report)) {
    finding.advice = *why;
  } else {
    finding.value = absl::StrCat(report.nccl_file, ", version ", report.nccl_version);
    if (report.nccl_cuda_version != 0) {
      absl::StrAppend(&finding.value, ", built for CUDA ",
                      CudaVersionText(report.nccl_cuda_version));
    }
    std::vector<std::string> advice;
    if (const std::optional<std::string> too_old = WhyDriverTooOldForNccl(report)) {
      advice.push_back(*too_old);
    } else if (!report.nccl_lacks.empty()) {
      advice.push_back(absl::StrCat("it lacks ", absl::StrJoin(report.nccl_lacks, ", "),
                                    ": training works without; registered memory does not"));
    }
    if (std::string limit = LimitOfSlices(report); !limit.empty()) advice.push_back(limit);
    finding.advice = absl::StrJoin(advice, "; ");
  }
  out.push_back(std::move(finding));
}

void AddToolkit(const DoctorFacts& facts, std::vector<Finding>& out) {
  const GpuReport& report = facts.gpu;
  if (!report.cublas_file.empty()) {
    out.push_back({.subject = "cublas",
                   .value = absl::StrCat(report.cublas_file, ", version ", report.cublas_version)});
  } else {
    out.push_back({.subject = "cublas",
                   .value = "not found",
                   .advice = absl::StrCat(
                       report.cublas_error.empty() ? report.interrupted : report.cublas_error,
                       "; only the example on the GPU needs it")});
  }
  const HostFacts& host = facts.host;
  if (!host.nvcc_file.empty()) {
    const std::string& version = host.toolkit_version;
    out.push_back({.subject = "toolkit",
                   .value = absl::StrCat(host.nvcc_file, ", version ",
                                         version.empty() ? "unknown" : version)});
  } else {
    out.push_back({.subject = "toolkit",
                   .value = "not found",
                   .advice = "no nvcc on PATH, in CUDA_HOME or /usr/local/cuda: only building CUDA "
                             "code needs it"});
  }
}

std::string SpeedText(int64_t megabits) {
  if (megabits == 0) return "speed unknown";
  if (megabits % 1000 == 0) return absl::StrCat(megabits / 1000, " Gbit/s");
  return absl::StrCat(megabits, " Mbit/s");
}

void AddNetwork(const HostFacts& host, std::vector<Finding>& out) {
  bool has_one = false;
  for (const NetworkInterface& interface : host.network) {
    if (!interface.is_up || interface.is_loopback || interface.addresses.empty()) continue;
    has_one = true;
    out.push_back({.subject = "network",
                   .value = absl::StrCat(interface.name, ", ", SpeedText(interface.megabits), ", ",
                                         absl::StrJoin(interface.addresses, " "))});
  }
  if (!has_one) {
    out.push_back({.subject = "network",
                   .value = "none",
                   .advice = "no interface is up and has an address: only jobs of one node run"});
  }
  for (const InfinibandPort& port : host.infiniband) {
    const bool is_active = port.state == "ACTIVE";
    out.push_back(
        {.subject = "infiniband",
         .value = absl::StrCat(port.device, " port ", port.port, ", ", port.state, ", ", port.rate),
         .advice = is_active ? ""
                             : "not active: NCCL cannot use it; look at the cable "
                               "and the subnet manager"});
  }
  if (host.infiniband.empty()) {
    out.push_back({.subject = "infiniband",
                   .value = "none",
                   .advice = "between nodes, gradients travel over the network above; on one node "
                             "nothing is lost"});
  }
}

std::string LimitText(const std::optional<uint64_t>& limit) {
  return limit ? absl::StrCat(*limit) : "unlimited";
}

void AddLimits(const HostFacts& host, std::vector<Finding>& out) {
  const std::optional<uint64_t>& memlock = host.memlock_bytes;
  out.push_back({.subject = "memlock", .value = memlock ? BytesText(*memlock) : "unlimited"});
  if (memlock && !host.infiniband.empty() && *memlock < kEnoughMemlock) {
    out.back().advice = "InfiniBand pins its buffers and fails beyond that: ulimit -l unlimited";
  }
  out.push_back({.subject = "nofile", .value = LimitText(host.open_files)});
  if (host.open_files != host.open_files_hard) {
    absl::StrAppend(&out.back().value, ", at most ", LimitText(host.open_files_hard));
  }
  if (host.open_files && *host.open_files < kEnoughFiles) {
    out.back().advice = "a rank of a large job has a socket for many a peer: ulimit -n 65536";
  }
  const std::string free = BytesText(host.shm_free_bytes);
  out.push_back({.subject = "/dev/shm",
                 .value = host.has_shm
                              ? absl::StrCat(BytesText(host.shm_bytes), ", ", free, " free")
                              : "none"});
  if (host.shm_free_bytes < kEnoughShm) {
    out.back().advice =
        "NCCL and data loaders share memory there and fail when it is full: at least 1 "
        "GiB free is good (docker run --shm-size=8g)";
  }
  out.push_back({.subject = "numa nodes",
                 .value = host.numa_nodes == 0 ? "unknown" : absl::StrCat(host.numa_nodes)});
}

}  // namespace

std::string BytesText(uint64_t bytes) {
  const bool is_large = bytes >= kGiB;
  const uint64_t unit = is_large ? kGiB : bytes >= kMiB ? kMiB : 1024;
  const char* name = is_large ? " GiB" : bytes >= kMiB ? " MiB" : " KiB";
  const uint64_t tenths = (bytes % unit) * 10 / unit;
  return absl::StrCat(bytes / unit, tenths == 0 ? "" : absl::StrCat(".", tenths), name);
}

std::vector<Finding> FindingsOf(const DoctorFacts& facts) {
  std::vector<Finding> out;
  AddDriver(facts, out);
  AddGpus(facts, out);
  AddNccl(facts.gpu, out);
  AddToolkit(facts, out);
  AddNetwork(facts.host, out);
  AddLimits(facts.host, out);
  return out;
}

}  // namespace ddprun::launcher
