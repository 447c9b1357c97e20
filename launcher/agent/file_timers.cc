#include "launcher/agent/file_timers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "launcher/process/leftovers.h"
#include "process/raw_syscall.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

namespace asio = boost::asio;

constexpr char kEnableVar[] = "TORCHELASTIC_ENABLE_FILE_TIMER";
constexpr char kFileVar[] = "TORCHELASTIC_TIMER_FILE";
constexpr size_t kMaxTimers = 10000;
constexpr double kFarSeconds = 366.0 * 24 * 3600;  // beyond it a timer never expires
constexpr int kMaxComplaints = 5;
constexpr int kMaxAncestors = 64;

bool IsFifo(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 && S_ISFIFO(about.st_mode);
}

double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// 0: there is none. On the agent's thread: the kernel makes this file up from what it holds in
// memory, and asks nothing of the process or of a disk for it.
int ParentOf(int pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));  // the name may hold anything
  char state = 0;
  int parent = 0;
  fields >> state >> parent;
  return parent;
}

}  // namespace

std::optional<TimerRequest> ParseTimerRequest(std::string_view line) {
  using Json = nlohmann::json;
  if (line.size() > kMaxTimerLine) return std::nullopt;
  // No request has a member with members of its own.
  const auto guard = [](int depth, Json::parse_event_t, Json&) { return depth <= 1; };
  const Json json = Json::parse(line, guard, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const Json pid = json.value("pid", Json());  // null: it is not there
  const Json scope = json.value("scope_id", Json());
  const Json expires = json.value("expiration_time", Json());
  const Json signal = json.value("signal", Json());
  if (!pid.is_number_integer() || !scope.is_string() || !expires.is_number() ||
      !signal.is_number_integer()) {
    return std::nullopt;
  }
  if (pid <= 1 || pid > std::numeric_limits<int>::max()) return std::nullopt;
  if (signal > 64 || signal < -64) return std::nullopt;
  return TimerRequest{pid, scope, expires, signal};
}

std::string ShortScope(const std::string& scope) {
  constexpr size_t kMaxBytes = 100;
  if (scope.size() <= kMaxBytes) return scope;
  return scope.substr(0, CharacterStart(scope, kMaxBytes)) + "...";
}

std::optional<std::string> TimerFileOf(const Environment& environment) {
  if (environment.Get(kEnableVar) != "1") return std::nullopt;
  // Both variables reach every worker, and so a ddprun that a worker starts.
  const bool is_nested = environment.Get(kJobMarkVariable).has_value();
  const std::string named = environment.Get(kFileVar).value_or("");
  if (!named.empty() && !is_nested) return named;
  std::string folder = environment.Get("TMPDIR").value_or("");
  if (folder.empty()) folder = "/tmp";
  std::random_device random;
  return absl::StrCat(folder, "/watchdog_timer_", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8));
}

void FileTimers::Read() {
  fifo_.async_read_some(
      asio::buffer(block_), [this](const boost::system::error_code& error, size_t size) {
        if (error == asio::error::operation_aborted) return;
        // We hold the FIFO's other end, so it does not end.
        if (error) {
          // Not a complaint about one line: it is said whatever was said before.
          return say_("warning: timers are not heeded any more: " + error.message());
        }
        Take(std::string_view(block_.data(), size));
        Read();
      });
}

// All that has come at once: a release may stand behind other lines, and no timer expires between.
void FileTimers::Take(std::string_view bytes) {
  for (;;) {
    const size_t newline = bytes.find('\n');
    if (!is_skipping_) line_ += bytes.substr(0, newline);
    if (line_.size() > kMaxTimerLine) {
      is_skipping_ = true;
      line_.clear();
    }
    if (newline == std::string_view::npos) return Arm();
    if (is_skipping_) {
      Complain("warning: a line in the timers' file is too long: ignored");
    } else {
      TakeLine(line_);
    }
    is_skipping_ = false;
    line_.clear();
    bytes.remove_prefix(newline + 1);
  }
}

void FileTimers::TakeLine(std::string_view line) {
  std::optional<TimerRequest> timer = ParseTimerRequest(line);
  if (!timer) {
    return Complain(absl::StrCat("warning: no timer request, ignored: ", Quoted(line)));
  }
  const std::pair<int, std::string> key{timer->pid, timer->scope};
  if (timer->expires < 0) {
    timers_.erase(key);
    return;
  }
  if (timers_.size() >= kMaxTimers && !timers_.contains(key)) {
    return Complain(absl::StrCat("warning: more than ", kMaxTimers, " timers: ignored"));
  }
  timers_[key] = *std::move(timer);
}

void FileTimers::Arm() {
  if (timers_.empty()) {
    alarm_.cancel();
    return;
  }
  const auto next = std::min_element(timers_.begin(), timers_.end(), [](auto& a, auto& b) {
    return a.second.expires < b.second.expires;
  });
  const double left = std::clamp(next->second.expires - UnixSeconds(), 0.0, kFarSeconds);
  alarm_.expires_after(std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::duration<double>(left)));
  alarm_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Expire();
  });
}

void FileTimers::Expire() {
  const double now = UnixSeconds();
  std::vector<TimerRequest> expired;
  std::erase_if(timers_, [&](const auto& timer) {
    const bool is_over = timer.second.expires <= now;
    if (is_over) expired.push_back(timer.second);
    return is_over;
  });
  std::sort(expired.begin(), expired.end(),
            [](const auto& a, const auto& b) { return a.expires < b.expires; });
  for (const TimerRequest& timer : expired) {
    expired_(timer, false);
    if (timer.signal > 0) Kill(timer);
  }
  Arm();
}

int FileTimers::WorkerOf(int pid) const {
  for (int hops = 0; pid > 1 && hops < kMaxAncestors; ++hops) {
    if (workers_.contains(pid)) return pid;
    // Each worker leads a session; its orphans stay in it.
    if (const int session = getsid(pid); workers_.contains(session)) return session;
    pid = ParentOf(pid);
  }
  return 0;
}

void FileTimers::Kill(const TimerRequest& timer) {
  // Held before it is looked at: the number cannot pass to another process in between.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, timer.pid, 0)));
  if (!process.is_open() && errno == ESRCH) return;  // it ended with the timer running
  const int worker = WorkerOf(timer.pid);
  if (worker == 0) {
    return Complain(absl::StrCat("warning: a timer names pid ", timer.pid,
                                 ", which is no process of this node's workers: ignored"));
  }
  const long sent = process.is_open()
                        ? syscall(SYS_pidfd_send_signal, process.get(), timer.signal, nullptr, 0)
                        : kill(timer.pid, timer.signal);
  if (sent != 0) return;
  killed_.emplace(worker, timer.scope);
  say_(absl::StrCat("the timer ", Quoted(ShortScope(timer.scope)), " of pid ", timer.pid,
                    " has expired: signal ", timer.signal, " sent"));
  expired_(timer, true);
}

std::string FileTimers::WorkerIsGone(int pid) {
  workers_.erase(pid);
  // They would take places of others', and be told as expired after a restart.
  std::erase_if(timers_, [pid](const auto& timer) { return timer.first.first == pid; });
  Arm();
  const auto killed = killed_.find(pid);
  if (killed == killed_.end()) return "";
  const std::string why =
      absl::StrCat("; its timer ", Quoted(ShortScope(killed->second)), " had expired");
  killed_.erase(killed);
  return why;
}

void FileTimers::Complain(const std::string& text) {
  if (++complaints_ > kMaxComplaints) return;
  say_(text);
}

absl::StatusOr<UniqueFd> MakeTimerFile(const std::string& path) {
  const auto failed = [&](const char* what) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat(what, " ", EscapeControl(path), ", the file of ", kFileVar));
  };
  // As torchrun: what an earlier agent left. Anything else is somebody's file.
  if (IsFifo(path) && unlink(path.c_str()) != 0) return failed("remove");
  if (mkfifo(path.c_str(), 0600) != 0) return failed("make a FIFO at");
  // With its writing end, so that it does not end when a worker's timers do.
  UniqueFd fifo(open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (fifo.is_open()) return fifo;
  const absl::Status status = failed("open");
  unlink(path.c_str());
  return status;
}

bool RemoveTimerFile(const std::string& path) { return IsFifo(path) && unlink(path.c_str()) == 0; }

}  // namespace ddprun::launcher
