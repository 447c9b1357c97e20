#include "launcher/doctor/host_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/read_system_facts.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

std::string ReadWord(const std::string& path) {
  return EscapeControl(std::string(absl::StripAsciiWhitespace(ReadSmallFile(path))));
}

// The names in a folder, sorted; none when there is no such folder.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string FindNvcc(const Environment& environment, const SystemFolders& folders) {
  const std::string home = environment.Get("CUDA_HOME").value_or("");
  const std::string places =
      absl::StrCat(environment.Get("PATH").value_or(""), ":", home.empty() ? "" : home + "/bin",
                   ":", folders.cuda, "/bin");
  for (const absl::string_view folder : absl::StrSplit(places, ':', absl::SkipEmpty())) {
    const std::string file = absl::StrCat(folder, "/nvcc");
    std::error_code error;
    if (fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// version.json stands beside the bin/ that holds nvcc, where /usr/local/cuda points. What a
// distribution's packages install has none; there the folder's name tells, as "cuda-13.0".
std::string VersionBeside(const std::string& nvcc) {
  std::error_code error;
  const fs::path real = fs::canonical(nvcc, error);
  if (error) return "";
  const fs::path folder = real.parent_path().parent_path();
  std::string version = ToolkitVersion(ReadSmallFile((folder / "version.json").string()));
  if (!version.empty()) return version;
  const std::string name = folder.filename().string();
  absl::string_view rest = name;
  return absl::ConsumePrefix(&rest, "cuda-") ? EscapeControl(std::string(rest)) : "";
}

std::string AddressText(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  } else if (address.sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  }
  return text;
}

std::vector<NetworkInterface> ReadNetwork(const SystemFolders& folders) {
  std::map<std::string, NetworkInterface> by_name;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    NetworkInterface& interface = by_name[at->ifa_name];
    interface.name = at->ifa_name;
    interface.is_up = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_RUNNING) != 0;
    interface.is_loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    if (at->ifa_addr == nullptr) continue;
    if (std::string text = AddressText(*at->ifa_addr); !text.empty()) {
      interface.addresses.push_back(std::move(text));
    }
  }
  freeifaddrs(list);
  std::vector<NetworkInterface> out;
  for (auto& [name, interface] : by_name) {
    int64_t megabits = 0;
    const std::string speed = ReadWord(absl::StrCat(folders.sys, "/class/net/", name, "/speed"));
    if (absl::SimpleAtoi(speed, &megabits) && megabits > 0) interface.megabits = megabits;
    out.push_back(std::move(interface));
  }
  return out;
}

std::vector<InfinibandPort> ReadInfiniband(const SystemFolders& folders) {
  std::vector<InfinibandPort> ports;
  const std::string devices = folders.sys + "/class/infiniband";
  for (const std::string& device : NamesIn(devices)) {
    const std::string folder = absl::StrCat(devices, "/", device, "/ports");
    for (const std::string& name : NamesIn(folder)) {
      InfinibandPort port{.device = EscapeControl(device)};
      if (!absl::SimpleAtoi(name, &port.port)) continue;
      const std::string state = ReadWord(absl::StrCat(folder, "/", name, "/state"));  // "4: ACTIVE"
      const size_t colon = state.find(": ");
      port.state = colon == std::string::npos ? state : state.substr(colon + 2);
      port.rate = ReadWord(absl::StrCat(folder, "/", name, "/rate"));
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

int CountNumaNodes(const SystemFolders& folders) {
  int count = 0;
  for (const std::string& name : NamesIn(folders.sys + "/devices/system/node")) {
    int number = 0;
    if (name.rfind("node", 0) == 0 && absl::SimpleAtoi(name.substr(4), &number)) ++count;
  }
  return count;
}

std::optional<uint64_t> Limit(rlim_t value) {
  if (value == RLIM_INFINITY) return std::nullopt;
  return uint64_t{value};
}

void ReadLimits(const SystemFolders& folders, HostFacts& facts) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.memlock_bytes = Limit(limit.rlim_cur);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = Limit(limit.rlim_cur);
    facts.open_files_hard = Limit(limit.rlim_max);
  }
  struct statvfs shm {};
  facts.has_shm = statvfs(folders.shm.c_str(), &shm) == 0;
  facts.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  facts.shm_free_bytes = uint64_t{shm.f_bavail} * shm.f_frsize;
}

}  // namespace

std::string ToolkitVersion(const std::string& version_json) {
  using Json = nlohmann::json;
  const Json versions = Json::parse(version_json, nullptr, false);
  const Json::json_pointer cuda("/cuda/version");
  if (!versions.contains(cuda) || !versions[cuda].is_string()) return "";
  return EscapeControl(versions[cuda].get<std::string>()).substr(0, 40);
}

DriverFacts ReadDriverFacts(const Environment& environment, const SystemFolders& folders) {
  DriverFacts facts;
  facts.kernel_module = ReadSystemFacts(folders.proc).nvidia_module;
  facts.gpus_in_machine = static_cast<int>(NamesIn(folders.proc + "/driver/nvidia/gpus").size());
  facts.visible_devices = environment.Get("CUDA_VISIBLE_DEVICES");
  return facts;
}

HostFacts ReadHostFacts(const Environment& environment, const SystemFolders& folders) {
  HostFacts facts;
  facts.system = ReadSystemFacts(folders.proc);
  facts.driver = ReadDriverFacts(environment, folders);
  facts.nvcc_file = FindNvcc(environment, folders);
  if (!facts.nvcc_file.empty()) facts.toolkit_version = VersionBeside(facts.nvcc_file);
  facts.network = ReadNetwork(folders);
  facts.infiniband = ReadInfiniband(folders);
  facts.numa_nodes = CountNumaNodes(folders);
  ReadLimits(folders, facts);
  return facts;
}

}  // namespace ddprun::launcher
