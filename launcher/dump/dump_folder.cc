#include "launcher/dump/dump_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxFlightRecord = 4 << 20;
constexpr int kMaxFlightRecords = 64;       // of a process: one for each of its groups
constexpr int kMaxFolderEntries = 100'000;  // of what may be /tmp

absl::Status MakeFolder(const std::string& path) {
  return mkdir(path.c_str(), 0700) == 0 ? absl::OkStatus() : FileError("mkdir", path);
}

// Makes the request's folder, or one of its name elsewhere, which it then is.
void MakeAnyFolder(DumpRequest& request, DumpResult& result) {
  result.status = MakeFolder(request.folder);
  const std::string name = request.folder.substr(request.folder.rfind('/') + 1);
  for (const std::string& place : request.other_places) {
    if (result.status.ok()) break;
    const std::string folder = absl::StrCat(place, "/", name);
    if (!MakeFolder(folder).ok()) continue;
    result.why_there = std::string(result.status.message());
    result.status = absl::OkStatus();
    request.folder = folder;
  }
  if (result.status.ok()) result.folder = request.folder;
}

// New, for its owner alone, and through no link that somebody laid there.
absl::Status WriteNewFile(const std::string& path, string_view text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.is_open()) return FileError("open", path);
  return WriteAll(fd.get(), text, path);
}

// A regular file of our own, whole: what lies in /tmp may be anybody's, a FIFO among it.
absl::StatusOr<std::string> ReadOwnFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open()) return FileError("open", path);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return FileError("fstat", path);
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("\"", path, "\" is no file of this user"));
  }
  std::string text;
  char buffer[16 * 1024];
  while (text.size() < kMaxFlightRecord) {
    const ssize_t count = read(fd.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

// "ddp-flight-<rank>-<pid>-<number>.json" (worker_runtime/comm/flight_recorder.h).
bool IsFlightRecordOf(string_view name, pid_t pid) {
  if (!absl::StartsWith(name, "ddp-flight-") || !absl::EndsWith(name, ".json")) return false;
  const std::vector<string_view> parts = absl::StrSplit(name, '-');
  return parts.size() == 5 && parts[3] == absl::StrCat(pid);
}

std::string TimeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// Writes files and keeps the first error.
class Writer {
 public:
  explicit Writer(const DumpRequest& request) : request_(request) {}

  void Write(DumpResult& result, const std::vector<ProcessReading>& readings,
             const std::string& roll_call);

 private:
  void Keep(const absl::Status& status) {
    if (status.ok()) return;
    if (status_.ok()) status_ = status;
    errors_.push_back(std::string(status.message()));
  }
  std::string RankFolder(const DumpProcess& process) const {
    return absl::StrCat(request_.folder, "/rank-", process.rank);
  }
  void WriteRank(const DumpProcess& process, const ProcessReading& reading);
  void TakeFlightRecords();

  const DumpRequest& request_;
  absl::Status status_;
  std::vector<std::string> errors_;
};

void Writer::WriteRank(const DumpProcess& process, const ProcessReading& reading) {
  const std::string folder = RankFolder(process);
  const absl::Status made = MakeFolder(folder);
  Keep(made);
  if (!made.ok()) return;
  Keep(WriteNewFile(folder + "/stack.txt", ResultText(reading.stack)));
  Keep(WriteNewFile(folder + "/status.txt",
                    absl::StrCat(reading.command.empty() ? "" : "== command ==\n", reading.command,
                                 reading.command.empty() ? "" : "\n\n", reading.status)));
  Keep(WriteNewFile(folder + "/environment.txt", reading.environment));
  if (!reading.torch_flights.gloo.empty()) {
    Keep(WriteNewFile(folder + "/torch_flight_record.json", reading.torch_flights.gloo));
  }
  if (!reading.torch_flights.nccl.empty()) {
    Keep(WriteNewFile(folder + "/torch_nccl_flight_record.json", reading.torch_flights.nccl));
  }
}

void Writer::TakeFlightRecords() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(request_.flight_folder.c_str()),
                                                   closedir);
  if (folder == nullptr) return Keep(FileError("opendir", request_.flight_folder));
  std::vector<int> taken(request_.processes.size(), 0);
  for (int seen = 0; seen < kMaxFolderEntries; ++seen) {
    const dirent* const entry = readdir(folder.get());
    if (entry == nullptr) return;
    for (size_t i = 0; i < request_.processes.size(); ++i) {
      const DumpProcess& process = request_.processes[i];
      if (!IsFlightRecordOf(entry->d_name, process.pid) || ++taken[i] > kMaxFlightRecords) continue;
      const auto text = ReadOwnFile(absl::StrCat(request_.flight_folder, "/", entry->d_name));
      // Not that of another user, whose process had this number once.
      if (!text.ok()) continue;
      Keep(WriteNewFile(absl::StrCat(RankFolder(process), "/", entry->d_name), *text));
    }
  }
}

void Writer::Write(DumpResult& result, const std::vector<ProcessReading>& readings,
                   const std::string& roll_call) {
  for (size_t i = 0; i < readings.size(); ++i) WriteRank(request_.processes[i], readings[i]);
  Keep(WriteNewFile(request_.folder + "/roll_call.txt", roll_call));
  // Last, as it reads a folder that may not answer; the summary tells of errors until here.
  Keep(WriteNewFile(request_.folder + "/summary.json",
                    DumpSummary(request_, result, readings, TimeNow(), errors_)));
  if (!request_.flight_folder.empty()) TakeFlightRecords();
  result.status = status_;
}

}  // namespace

std::string DumpSummary(const DumpRequest& request, const DumpResult& result,
                        const std::vector<ProcessReading>& readings, const std::string& time,
                        const std::vector<std::string>& errors) {
  Json ranks = Json::array();
  for (size_t i = 0; i < readings.size(); ++i) {
    const DumpProcess& process = request.processes[i];
    const StackResult& stack = readings[i].stack;
    ranks.push_back({{"rank", process.rank},
                     {"local_rank", process.local_rank},
                     {"pid", process.pid},
                     {"is_alive", stack.is_alive},
                     {"where", result.ranks[i].where},
                     {"is_waiting", result.ranks[i].is_waiting},
                     {"tool", stack.stack.tool},
                     {"kernel_wait", stack.kernel_wait},
                     {"problem", stack.problem}});
  }
  const Json summary = {{"run_id", request.run_id},     {"host", request.host}, {"time", time},
                        {"roll_call", result.sentence}, {"ranks", ranks},       {"errors", errors}};
  return summary.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string DumpPlaceText(const std::string& folder, const std::string& why_there) {
  return absl::StrCat("stacks are in ", folder, why_there.empty() ? "" : " (", why_there,
                      why_there.empty() ? "" : ")");
}

DumpResult WriteDump(const DumpRequest& unsorted) {
  DumpRequest request = unsorted;
  std::sort(request.processes.begin(), request.processes.end(),
            [](const DumpProcess& a, const DumpProcess& b) { return a.rank < b.rank; });
  // Before the work, so that a wrong name is known at once.
  DumpResult result;
  MakeAnyFolder(request, result);
  std::vector<pid_t> pids;
  for (const DumpProcess& process : request.processes) pids.push_back(process.pid);
  const std::vector<ProcessReading> readings = ReadProcesses(
      pids, request.deadline, {.tools = request.tools, .wants_facts = result.status.ok()});
  for (size_t i = 0; i < readings.size(); ++i) {
    result.ranks.push_back(ToRankStack(request.processes[i].rank, readings[i].stack));
  }
  const std::vector<RankGroup> groups = GroupRanks(result.ranks);
  result.sentence = RollCallSentence(groups);
  if (result.status.ok()) Writer(request).Write(result, readings, RollCallText(groups));
  return result;
}

}  // namespace ddprun::launcher
