#include "launcher/process/left_children.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/process/survivors.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// A job may leave hundreds.
constexpr size_t kMostNamed = 3;

bool HasGpu(const std::string& folder) {
  constexpr std::array<std::string_view, 3> kDevices = {"/dev/nvidia", "/dev/kfd", "/dev/dri/"};
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder + "/fd", error), end; !error && file != end;
       file.increment(error)) {
    std::error_code closed;
    const std::string path = std::filesystem::read_symlink(*file, closed).string();
    const auto is_device = [&](std::string_view device) { return path.starts_with(device); };
    if (std::ranges::any_of(kDevices, is_device)) return true;
  }
  return false;
}

// Not whoever has the number by now.
void SignalHolder(pid_t pid, const std::string& proc, int signal) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open() || !HasGpu(absl::StrCat(proc, "/", pid))) return;
  (void)syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

std::string RankOf(const std::string& folder) {
  constexpr std::string_view kName = "RANK=";
  std::ifstream environment(folder + "/environ");
  for (std::string variable; std::getline(environment, variable, '\0');) {
    if (variable.starts_with(kName)) return variable.substr(kName.size());
  }
  return "";
}

std::string Named(const std::vector<LeftChild>& children) {
  std::vector<std::string> names;
  for (const LeftChild& child : children) {
    if (names.size() == kMostNamed) break;
    names.push_back(absl::StrCat(child.name, " (pid ", child.pid, ")"));
  }
  const size_t more = children.size() - names.size();
  return absl::StrCat(absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

std::string RanksOf(const std::vector<LeftChild>& children) {
  std::set<std::string> ranks;
  for (const LeftChild& child : children) {
    if (!child.rank.empty()) ranks.insert(child.rank);
  }
  if (ranks.empty()) return "a worker has";
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
                      ranks.size() == 1 ? " has" : " have");
}

}  // namespace

std::string LeftChildrenText(const std::vector<LeftChild>& children, Duration keep) {
  const bool is_one = children.size() == 1;
  const std::string left =
      absl::StrCat(RanksOf(children), " ended and left ", Named(children), " running: ");
  if (keep == Duration{0}) {
    return absl::StrCat(left, "ending ", is_one ? "it" : "them", "; --keep_children=SECONDS gives ",
                        is_one ? "it" : "them", " time");
  }
  if (children.front().has_gpu) {
    return absl::StrCat(left, "ending ", is_one ? "it, as it has" : "them, as they have",
                        " a GPU open, in spite of --keep_children");
  }
  return absl::StrCat(left, is_one ? "it has " : "they have ", DurationText(keep),
                      " to end (--keep_children)");
}

std::vector<LeftChild> FindLeftChildren(LeftoverQuery query) {
  std::vector<pid_t> pids;
  query.visit = [](void* context, pid_t pid) {
    static_cast<std::vector<pid_t>*>(context)->push_back(pid);
  };
  query.context = &pids;
  SignalLeftovers(query, 0);
  std::vector<LeftChild> children;
  for (const pid_t pid : pids) {
    const std::string folder = absl::StrCat(query.proc, "/", pid);
    LeftChild child{.pid = pid, .rank = RankOf(folder), .has_gpu = HasGpu(folder)};
    std::ifstream name(folder + "/comm");
    if (std::getline(name, child.name)) children.push_back(std::move(child));
  }
  return children;
}

void LeftChildren::Begin() {
  look_at_ = kNever;
  ranks_.clear();
  told_.clear();
  kill_at_.clear();
}

void LeftChildren::WorkerEnded(int rank, TimePoint at) {
  ranks_.insert(absl::StrCat(rank));
  look_at_ = at + kSettle;
}

std::vector<std::string> LeftChildren::Look(TimePoint now, const LeftoverQuery& query) {
  if (look_at_ > now) return {};
  look_at_ = kNever;
  std::vector<LeftChild> kept;
  std::vector<LeftChild> ended;
  for (const LeftChild& child : FindLeftChildren(query)) {
    if (!ranks_.contains(child.rank)) continue;  // another worker's, which runs
    if (keep_ != Duration{0}) look_at_ = now + kLookAgain;
    if (keep_ == Duration{0} || !child.has_gpu) {
      if (told_.insert(child.pid).second) kept.push_back(child);
      continue;
    }
    const auto [due, is_first] = kill_at_.try_emplace(child.pid, now + grace_);
    if (is_first) ended.push_back(child);
    if (is_first || due->second <= now) {
      SignalHolder(child.pid, query.proc, is_first ? SIGTERM : SIGKILL);
    }
  }
  std::vector<std::string> lines;
  if (!kept.empty()) lines.push_back(LeftChildrenText(kept, keep_));
  if (!ended.empty()) lines.push_back(LeftChildrenText(ended, keep_));
  return lines;
}

}  // namespace ddprun::launcher
