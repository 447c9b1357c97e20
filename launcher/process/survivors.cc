#include "launcher/process/survivors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace ddprun::launcher {
namespace {

// When the user is told for what is waited.
constexpr Duration kTellAfter = std::chrono::seconds(5);
constexpr size_t kMostNamed = 4;
constexpr size_t kMostThreads = 4096;  // looked at, of all survivors together
constexpr size_t kMostWait = 64;

// Of a thread that waits for the kernel alone, by its folder in /proc: where in the kernel, "it
// does not say where" where we may not know. "": it is none.
std::string WaitOf(const std::filesystem::path& thread) {
  std::stringstream stat;
  stat << std::ifstream(thread / "stat").rdbuf();
  // The name before the state may hold anything, parentheses as well.
  const std::string text = stat.str();
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || text.compare(name_end, 3, ") D") != 0) return "";
  std::string wait;
  std::getline(std::ifstream(thread / "wchan"), wait);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  };
  const bool is_known = !wait.empty() && wait != "0" && wait.size() <= kMostWait &&
                        std::all_of(wait.begin(), wait.end(), is_plain);
  return is_known ? "in " + wait : "it does not say where";
}

// Its main thread may have ended: each other one that waits keeps the process. `left`: how many
// threads may still be looked at.
std::string WaitOf(pid_t pid, size_t& left) {
  std::error_code error;
  std::filesystem::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", error);
  for (; !error && thread != std::filesystem::directory_iterator() && left > 0;
       thread.increment(error), --left) {
    if (std::string wait = WaitOf(thread->path()); !wait.empty()) return wait;
  }
  return "";
}

std::string NamesOf(const std::vector<Survivor>& survivors) {
  std::string names;
  for (size_t i = 0; i < std::min(survivors.size(), kMostNamed); ++i) {
    names += (i == 0 ? "" : ", ") + NameOf(survivors[i]);
  }
  if (survivors.size() <= kMostNamed) return names;
  return names + " and " + std::to_string(survivors.size() - kMostNamed) + " more";
}

std::string LivesOnText(const std::vector<Survivor>& survivors, Duration since_kill) {
  const std::string when = " " + DurationText(since_kill) + " after SIGKILL: ";
  if (survivors.empty()) {
    return "processes of this node's workers live on" + when +
           "the kernel holds them or another user owns them";
  }
  const bool is_one = survivors.size() == 1;
  const std::string who = NamesOf(survivors) + (is_one ? " lives on" : " live on") + when;
  size_t left = kMostThreads;
  for (const Survivor& survivor : survivors) {
    if (left == 0) break;
    const std::string wait = WaitOf(survivor.pid, left);
    if (wait.empty()) continue;
    const std::string whom = is_one ? "it" : "rank " + std::to_string(survivor.rank);
    return who + "the kernel holds " + whom + " (" + wait +
           "), as it does where a file system, a disk or a driver does not answer";
  }
  return who + "the kernel holds " + (is_one ? "it" : "them") + " or another user owns " +
         (is_one ? "it" : "them");
}

}  // namespace

std::string NameOf(const Survivor& survivor) {
  return "rank " + std::to_string(survivor.rank) + " (pid " + std::to_string(survivor.pid) + ")";
}

std::string DurationText(Duration duration) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  if (milliseconds % 1000 == 0) return std::to_string(milliseconds / 1000) + " s";
  return std::to_string(milliseconds) + " ms";
}

void SurvivorWatch::Reset() {
  since_.reset();
  is_told_ = false;
}

void SurvivorWatch::Postpone(Duration pause) {
  if (since_) *since_ += pause;
}

bool SurvivorWatch::IsGivenUp(TimePoint now, bool is_all_killed) {
  if (!is_all_killed) {
    Reset();
    return false;
  }
  if (!since_) since_ = now;
  return now - *since_ >= give_up_after_;
}

std::string SurvivorWatch::TakeNotice(TimePoint now, const std::vector<Survivor>& survivors) {
  if (!since_ || is_told_ || now - *since_ < kTellAfter) return "";
  is_told_ = true;
  return LivesOnText(survivors, kTellAfter) + "; given up after " + DurationText(give_up_after_);
}

std::string SurvivorWatch::GivenUpText(const std::vector<Survivor>& survivors) const {
  return LivesOnText(survivors, give_up_after_);
}

TimePoint SurvivorWatch::next_at() const {
  if (!since_) return TimePoint::max();
  return *since_ + (is_told_ ? give_up_after_ : std::min(kTellAfter, give_up_after_));
}

}  // namespace ddprun::launcher
