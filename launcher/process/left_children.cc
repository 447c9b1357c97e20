#include "launcher/process/left_children.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/process/owner_tag.h"
#include "launcher/process/process.h"
#include "launcher/process/survivors.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// A job may leave hundreds.
constexpr size_t kMostNamed = 3;

bool HasGpu(const std::string& folder) {
  static constexpr std::array<std::string_view, 3> kDevices = {"/dev/nvidia", "/dev/kfd",
                                                               "/dev/dri/"};
  const auto is_device = [](std::string_view link) {
    return std::ranges::any_of(kDevices, [link](auto device) { return link.starts_with(device); });
  };
  return HasOpenFile(folder, is_device).value_or(false);
}

// Not whoever has the number by now.
void SignalHolder(pid_t pid, const std::string& proc, int signal) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open() || !HasGpu(absl::StrCat(proc, "/", pid))) return;
  (void)syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

// -1: its environment does not tell.
int RankOf(const std::string& folder) {
  constexpr absl::string_view kName = "RANK=";
  const std::string environment = ReadProcFile(folder + "/environ");
  for (const absl::string_view variable : absl::StrSplit(environment, '\0')) {
    int rank = -1;
    const bool is_it = absl::StartsWith(variable, kName);
    if (is_it && absl::SimpleAtoi(variable.substr(kName.size()), &rank)) return rank;
  }
  return -1;
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
  std::set<int> ranks;
  for (const LeftChild& child : children) {
    if (child.rank >= 0) ranks.insert(child.rank);
  }
  if (ranks.empty()) return "a worker has";
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
                      ranks.size() == 1 ? " has" : " have");
}

}  // namespace

std::string OverdueChildrenText(const std::vector<LeftChild>& children, Duration keep) {
  return absl::StrCat(Named(children), " had not ended within ", DurationText(keep),
                      " (--keep-children): ending ", children.size() == 1 ? "it" : "them", " now");
}

std::string LeftChildrenText(const std::vector<LeftChild>& children, Duration keep) {
  const bool is_one = children.size() == 1;
  const std::string left =
      absl::StrCat(RanksOf(children), " ended and left ", Named(children), " running: ");
  if (keep == Duration{0}) {
    return absl::StrCat(left, is_one ? "it is" : "they are",
                        " ended with this node's workers; --keep-children=SECONDS gives ",
                        is_one ? "it" : "them", " time");
  }
  if (children.front().has_gpu) {
    return absl::StrCat(left, "ending ", is_one ? "it, as it has" : "them, as they have",
                        " a GPU open, in spite of --keep-children");
  }
  return absl::StrCat(left, is_one ? "it has " : "they have ", DurationText(keep),
                      " to end (--keep-children)");
}

std::vector<LeftChild> FindLeftChildren(LeftoverQuery query, const std::set<pid_t>& living,
                                        bool is_gpu_wanted) {
  std::vector<pid_t> pids;
  query.visit = [](void* context, pid_t pid) {
    static_cast<std::vector<pid_t>*>(context)->push_back(pid);
  };
  query.context = &pids;
  SignalLeftovers(query, 0);
  const auto is_living = [&](pid_t pid, std::string_view) { return living.contains(pid); };
  std::vector<LeftChild> children;
  for (const pid_t pid : pids) {
    if (FindAncestor(is_living, pid) != 0) continue;
    const std::string folder = absl::StrCat(query.proc, "/", pid);
    LeftChild child{.pid = pid, .rank = RankOf(folder), .has_gpu = is_gpu_wanted && HasGpu(folder)};
    child.name = ReadProcFile(folder + "/comm");
    if (child.name.ends_with('\n')) child.name.pop_back();
    if (!child.name.empty()) children.push_back(std::move(child));
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
  std::set<int> ranks;
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
