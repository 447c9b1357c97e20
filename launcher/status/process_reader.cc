#include "launcher/status/process_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "launcher/status/system_calls.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMostProcesses = 100;  // of one worker

// Reads one file after the other into one buffer.
class Reader {
 public:
  explicit Reader(const std::string& proc) : proc_(proc) {}

  // Empty where there is no such file; valid until the next call. No file that is read here is
  // longer, but for the children of a process that has hundreds, of which the first count.
  std::string_view Read(int pid, const char* file) {
    std::snprintf(path_, sizeof(path_), "%s/%d/%s", proc_.c_str(), pid, file);
    const UniqueFd fd(open(path_, O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) return {};
    ssize_t size = 0;
    do {
      size = read(fd.get(), buffer_, sizeof(buffer_));
    } while (size < 0 && errno == EINTR);
    return {buffer_, size > 0 ? static_cast<size_t>(size) : 0};
  }

  std::vector<int> Children(int pid) {
    char file[40];
    std::snprintf(file, sizeof(file), "task/%d/children", pid);
    std::string_view text = Read(pid, file);
    // The last number may be half a one.
    if (text.size() == sizeof(buffer_)) text = text.substr(0, text.rfind(' '));
    return ParseChildren(text, kMostProcesses);
  }

 private:
  const std::string& proc_;
  char path_[4096];
  char buffer_[4096];
};

std::string ReadWait(Reader& reader, int pid) {
  if (std::string wait = ParseWaitChannel(reader.Read(pid, "wchan")); !wait.empty()) return wait;
  // Kernels that hide their functions' names may still tell the call.
  const std::optional<SystemCall> call = ParseSystemCall(reader.Read(pid, "syscall"));
  return call ? call->name : "";
}

std::optional<ProcessSample> ReadWorker(Reader& reader, int pid) {
  std::optional<ProcessStat> largest = ParseProcessStat(reader.Read(pid, "stat"));
  if (!largest || largest->state == 'Z' || largest->state == 'X') return std::nullopt;
  ProcessSample sample{.at = SteadyNow(),
                       .pid = pid,
                       .start_ticks = largest->start_ticks,
                       .cpu_ticks = largest->cpu_ticks,
                       .pids = {pid}};
  for (size_t i = 0; i < sample.pids.size(); ++i) {
    for (const int child : reader.Children(sample.pids[i])) {
      if (sample.pids.size() >= kMostProcesses) break;
      const std::optional<ProcessStat> stat = ParseProcessStat(reader.Read(child, "stat"));
      // It has ended and been waited for since: its parent's time had been read before, so this
      // sample lacks it and the next has it.
      if (!stat) continue;
      sample.pids.push_back(child);
      sample.cpu_ticks += stat->cpu_ticks;
      if (stat->resident_pages > largest->resident_pages) largest = stat;
    }
  }
  sample.main_pid = largest->pid;
  sample.core_wait_ns = ParseCoreWait(reader.Read(largest->pid, "schedstat"));
  sample.threads = largest->threads;
  sample.state = largest->state;
  // On a machine with many CPUs `stat` may be hundreds of megabytes away from the truth.
  const ProcessStatus status = ParseProcessStatus(reader.Read(largest->pid, "status"));
  static const int64_t page = sysconf(_SC_PAGESIZE);
  sample.resident_bytes = status.resident_bytes.value_or(largest->resident_pages * page);
  if (largest->state != 'R') sample.wait = ReadWait(reader, largest->pid);
  return sample;
}

}  // namespace

std::vector<std::optional<ProcessSample>> ReadProcesses(const std::vector<int>& pids,
                                                        Duration limit, const std::string& proc) {
  const TimePoint end = SteadyNow() + limit;
  Reader reader(proc);
  std::vector<std::optional<ProcessSample>> samples;
  samples.reserve(pids.size());
  for (const int pid : pids) {
    if (pid <= 0 || SteadyNow() >= end) {
      samples.emplace_back();
    } else {
      samples.push_back(ReadWorker(reader, pid));
    }
  }
  return samples;
}

}  // namespace ddprun::launcher
