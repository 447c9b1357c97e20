#include "launcher/dump/proc_facts.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/status/system_calls.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

using absl::string_view;

constexpr int kMaxTasks = 4096;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t limit) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return FileError("open", path);
  std::string text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t count = read(fd.get(), buffer, std::min(sizeof(buffer), limit - text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

namespace {

std::string PathOf(pid_t pid, string_view name) { return absl::StrCat("/proc/", pid, "/", name); }

bool IsTaskStopped(pid_t pid, string_view task) {
  const auto status = ReadSmallFile(PathOf(pid, absl::StrCat("task/", task, "/status")), 8192);
  if (!status.ok()) return false;
  const char state = ParseProcessStatus(*status).state;
  if (state == 'T' || state == 't') return true;
  // What PTRACE_ATTACH sends to one thread, and what kill sends to the process.
  for (const char* name : {"SigPnd:", "ShdPnd:"}) {
    uint64_t pending = 0;
    if (absl::SimpleHexAtoi(std::string(StatusLine(*status, name)), &pending) &&
        (pending >> (SIGSTOP - 1) & 1) != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  const auto text = ReadSmallFile(PathOf(pid, "stat"), 4096);
  return text.ok() ? ParseProcessStat(*text) : std::nullopt;
}

bool IsAlive(const std::optional<ProcessStat>& stat) {
  return stat && stat->state != 'Z' && stat->state != 'X';
}

bool IsStoppedOrAboutTo(pid_t pid) {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(PathOf(pid, "task").c_str()), closedir);
  if (tasks == nullptr) return false;
  for (int seen = 0; seen < kMaxTasks; ++seen) {
    const dirent* const entry = readdir(tasks.get());
    if (entry == nullptr) return false;
    if (entry->d_name[0] != '.' && IsTaskStopped(pid, entry->d_name)) return true;
  }
  return false;
}

absl::StatusOr<std::string> ReadProcFile(pid_t pid, const char* name, size_t limit) {
  return ReadSmallFile(PathOf(pid, name), limit);
}

std::string ReadProcLink(pid_t pid, string_view name) {
  char buffer[PATH_MAX];
  const ssize_t size = readlink(PathOf(pid, name).c_str(), buffer, sizeof(buffer));
  return size <= 0 ? "" : std::string(buffer, static_cast<size_t>(size));
}

pid_t TracerOf(pid_t pid) {
  const auto status = ReadProcFile(pid, "status", 8192);
  pid_t tracer = 0;
  if (!status.ok() || !absl::SimpleAtoi(std::string(StatusLine(*status, "TracerPid:")), &tracer))
    return 0;
  return tracer;
}

std::string KernelWait(pid_t pid) {
  const auto wchan = ReadProcFile(pid, "wchan", 256);
  std::string place = wchan.ok() && *wchan != "0" ? EscapeControl(*wchan) : "";
  const auto text = ReadProcFile(pid, "syscall", 512);
  const auto call = text.ok() ? ParseSystemCall(*text) : std::nullopt;
  if (!call) return place.empty() ? "" : absl::StrCat("in the kernel (", place, ")");
  std::string where = absl::StrCat("in ", call->name);
  if (call->descriptor) {
    absl::StrAppend(&where, " of descriptor ", *call->descriptor);
    const std::string what = ReadProcLink(pid, absl::StrCat("fd/", *call->descriptor));
    if (!what.empty()) absl::StrAppend(&where, ", ", EscapeControl(what));
  }
  if (!place.empty()) absl::StrAppend(&where, " (kernel: ", place, ")");
  return where;
}

std::string VariableIn(string_view environ, string_view name) {
  for (string_view variable : absl::StrSplit(environ, '\0')) {
    if (absl::ConsumePrefix(&variable, name) && absl::ConsumePrefix(&variable, "=")) {
      return std::string(variable);
    }
  }
  return "";
}

}  // namespace ddprun::launcher
