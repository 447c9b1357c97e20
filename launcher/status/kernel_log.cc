#include "launcher/status/kernel_log.h"

#include <fcntl.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr char kDevice[] = "/dev/kmsg";
constexpr size_t kMostKills = 500;
constexpr int kSyslogReadAll = 3;      // SYSLOG_ACTION_READ_ALL: leaves the log as it is
constexpr int kSyslogSizeBuffer = 10;  // SYSLOG_ACTION_SIZE_BUFFER
constexpr int kMostSyslog = 4 << 20;

// A fixed inode of the kernel's: PROC_PID_INIT_INO.
bool IsMachinesPidNamespace() {
  constexpr std::string_view kInitial = "pid:[4026531836]";
  char text[64];
  const ssize_t size = readlink("/proc/self/ns/pid", text, sizeof(text));
  return size > 0 && std::string_view(text, static_cast<size_t>(size)) == kInitial;
}

// Where others' logs are none of ours, something else may stand there: /dev/null, a terminal.
bool IsKernelLog(const char* path) {
  struct stat file {};
  return stat(path, &file) == 0 && S_ISCHR(file.st_mode) && file.st_rdev == makedev(1, 11);
}

// The newest lines, as many as fit. Empty where we may not.
std::string ReadAllSyslog() {
  const int size = klogctl(kSyslogSizeBuffer, nullptr, 0);
  if (size <= 0) return "";
  std::string text(static_cast<size_t>(std::min(size, kMostSyslog)), '\0');
  const int got = klogctl(kSyslogReadAll, text.data(), static_cast<int>(text.size()));
  text.resize(static_cast<size_t>(std::max(got, 0)));
  return text;
}

std::string LastLine(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

}  // namespace

KernelLog::KernelLog(UniqueFd device) : device_(std::move(device)) {}

std::unique_ptr<KernelLog> KernelLog::Open() {
  if (!IsMachinesPidNamespace()) return nullptr;
  if (IsKernelLog(kDevice)) {
    if (auto log = OpenForTest(kDevice)) return log;
  }
  std::string last_line = LastLine(ReadAllSyslog());
  if (last_line.empty()) return nullptr;
  std::unique_ptr<KernelLog> log(new KernelLog(UniqueFd()));
  log->last_line_ = std::move(last_line);
  return log;
}

std::unique_ptr<KernelLog> KernelLog::OpenForTest(const std::string& device) {
  UniqueFd fd(open(device.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  // Where reading is forbidden (dmesg_restrict) this is found out here.
  if (!fd.is_open() || lseek(fd.get(), 0, SEEK_END) < 0) return nullptr;
  return std::unique_ptr<KernelLog>(new KernelLog(std::move(fd)));
}

void KernelLog::Note(std::string_view record) {
  const std::optional<OomKill> kill = ParseOomKill(KernelText(record));
  if (kill && kills_.size() < kMostKills) kills_.push_back(*kill);
}

void KernelLog::ReadDevice(TimePoint until) {
  char record[8192];  // the longest record that there is
  while (SteadyNow() < until) {
    const ssize_t size = read(device_.get(), record, sizeof(record));
    if (size < 0 && (errno == EINTR || errno == EPIPE)) continue;  // EPIPE: some were overwritten
    if (size <= 0) return;                                         // EAGAIN: no more
    // What follows on further lines is a record's dictionary.
    std::string_view text(record, static_cast<size_t>(size));
    Note(text.substr(0, text.find('\n')));
  }
}

void KernelLog::ReadSyslog() {
  const std::string all = "\n" + ReadAllSyslog();
  // Not there any more: all is newer.
  const size_t seen = all.rfind("\n" + last_line_ + "\n");
  std::string_view rest = all;
  rest.remove_prefix(seen == std::string::npos ? 1 : seen + last_line_.size() + 2);
  if (rest.empty()) return;
  last_line_ = LastLine(rest);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    Note(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

const std::vector<OomKill>& KernelLog::Kills(TimePoint until) {
  if (device_.is_open()) {
    ReadDevice(until);
  } else {
    ReadSyslog();
  }
  return kills_;
}

}  // namespace ddprun::launcher
