#include "launcher/process/left_children.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
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

// Whether `pid` is one of `living`, or has one of them among its ancestors.
bool IsOf(const std::set<pid_t>& living, pid_t pid, const std::string& proc) {
  constexpr int kMostAncestors = 1000;
  for (int depth = 0; pid > 1 && depth < kMostAncestors; ++depth) {
    if (living.contains(pid)) return true;
    std::ifstream file(absl::StrCat(proc, "/", pid, "/stat"));
    std::string stat;
    std::getline(file, stat, '\0');
    const size_t name_end = stat.rfind(')');  // "pid (name) state parent ..."
    if (name_end == std::string::npos || stat.size() < name_end + 5) return false;
    pid = std::atoi(stat.c_str() + name_end + 4);
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

std::string OverdueChildrenText(const std::vector<LeftChild>& children, Duration keep) {
  return absl::StrCat(Named(children), " had not ended within ", DurationText(keep),
                      " (--keep_children): ending ", children.size() == 1 ? "it" : "them", " now");
}

std::string LeftChildrenText(const std::vector<LeftChild>& children, Duration keep) {
  const bool is_one = children.size() == 1;
  const std::string left =
      absl::StrCat(RanksOf(children), " ended and left ", Named(children), " running: ");
  if (keep == Duration{0}) {
    return absl::StrCat(left, is_one ? "it is" : "they are",
                        " ended with this node's workers; --keep_children=SECONDS gives ",
                        is_one ? "it" : "them", " time");
  }
  if (children.front().has_gpu) {
    return absl::StrCat(left, "ending ", is_one ? "it, as it has" : "them, as they have",
                        " a GPU open, in spite of --keep_children");
  }
  return absl::StrCat(left, is_one ? "it has " : "they have ", DurationText(keep),
                      " to end (--keep_children)");
}

std::vector<LeftChild> FindLeftChildren(LeftoverQuery query, const std::set<pid_t>& living,
                                        bool is_gpu_wanted) {
  std::vector<pid_t> pids;
  query.visit = [](void* context, pid_t pid) {
    static_cast<std::vector<pid_t>*>(context)->push_back(pid);
  };
  query.context = &pids;
  SignalLeftovers(query, 0);
  std::vector<LeftChild> children;
  for (const pid_t pid : pids) {
    if (IsOf(living, pid, query.proc)) continue;
    const std::string folder = absl::StrCat(query.proc, "/", pid);
    LeftChild child{.pid = pid, .rank = RankOf(folder), .has_gpu = is_gpu_wanted && HasGpu(folder)};
    std::ifstream name(folder + "/comm");
    if (std::getline(name, child.name)) children.push_back(std::move(child));
  }
  return children;
}

void LeftChildren::Begin() {
  look_at_.clear();
  told_ranks_.clear();
  kill_at_.clear();
}

void LeftChildren::Postpone(Duration pause) {
  std::set<TimePoint> later;
  for (const TimePoint at : look_at_) later.insert(at + pause);
  look_at_ = std::move(later);
  for (auto& [pid, at] : kill_at_) at += pause;
}

TimePoint LeftChildren::next_at() const {
  return look_at_.empty() ? TimePoint::max() : *look_at_.begin();
}

std::vector<std::string> LeftChildren::Look(TimePoint now, const LeftoverQuery& query,
                                            const std::set<pid_t>& living) {
  if (next_at() > now) return {};
  look_at_.erase(look_at_.begin(), look_at_.upper_bound(now));
  const bool is_keeping = keep_ != Duration{0};
  const std::vector<LeftChild> left = FindLeftChildren(query, living, is_keeping);
  if (is_keeping && left.empty()) return {};
  if (is_keeping && now >= keep_until_) return {OverdueChildrenText(left, keep_)};
  if (is_keeping) look_at_.insert(std::min<TimePoint>(now + kLookAgain, keep_until_));
  std::vector<LeftChild> kept;
  std::vector<LeftChild> ended;
  std::set<std::string> ranks;
  for (const LeftChild& child : left) {
    if (!is_keeping || !child.has_gpu) {
      if (!told_ranks_.contains(child.rank)) kept.push_back(child);
      ranks.insert(child.rank);
      continue;
    }
    const auto [due, is_first] = kill_at_.try_emplace(child.pid, now + grace_);
    if (is_first) ended.push_back(child);
    if (is_first || due->second <= now) {
      SignalHolder(child.pid, query.proc, is_first ? SIGTERM : SIGKILL);
    }
  }
  told_ranks_.merge(ranks);
  std::vector<std::string> lines;
  if (!kept.empty()) lines.push_back(LeftChildrenText(kept, keep_));
  if (!ended.empty()) lines.push_back(LeftChildrenText(ended, keep_));
  return lines;
}

}  // namespace ddprun::launcher
