#include "launcher/status/process_facts.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxWait = 64;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// Takes the next word off `text`; empty at its end.
std::string_view TakeWord(std::string_view& text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  size_t size = 0;
  while (size < text.size() && !IsSpace(text[size])) ++size;
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(size);
  return word;
}

template <typename Number>
std::optional<Number> ToNumber(std::string_view word) {
  Number value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view StatusLine(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.substr(0, name.size()) == name) return line.substr(name.size());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

std::optional<ProcessStat> ParseProcessStat(std::string_view text) {
  // "pid (name) state ...": the name may hold parentheses, blanks and ends of lines, and nothing
  // behind it does.
  const size_t end = text.rfind(')');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view head = text.substr(0, end);
  const std::optional<int> pid = ToNumber<int>(TakeWord(head));
  std::string_view rest = text.substr(end + 1);
  const std::string_view state = TakeWord(rest);
  if (!pid || state.size() != 1) return std::nullopt;
  // Fields 4 to 24 of proc(5), by their numbers there.
  constexpr int kFirst = 4, kLast = 24;
  int64_t fields[kLast + 1] = {};
  for (int field = kFirst; field <= kLast; ++field) {
    const std::string_view word = TakeWord(rest);
    // The size of the address space may be anything; it is of no use here.
    const std::optional<int64_t> value = field == 23 ? 0 : ToNumber<int64_t>(word);
    if (!value) return std::nullopt;
    fields[field] = *value;
  }
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  const auto is_int = [&](int64_t value) { return value >= 0 && value <= kMaxInt; };
  if (*pid <= 0 || !is_int(fields[4]) || !is_int(fields[20]) || fields[22] < 0) return std::nullopt;
  constexpr int64_t kMost = int64_t{1} << 60;  // four of them can be added
  ProcessStat stat{.pid = *pid, .state = state.front()};
  for (int field = 14; field <= 17; ++field) {
    stat.cpu_ticks += std::clamp<int64_t>(fields[field], 0, kMost);
  }
  stat.parent = static_cast<int>(fields[4]);
  stat.threads = static_cast<int>(fields[20]);
  stat.start_ticks = fields[22];
  stat.resident_pages = std::max<int64_t>(fields[24], 0);
  return stat;
}

ProcessStatus ParseProcessStatus(std::string_view text) {
  ProcessStatus status;
  std::string_view state = StatusLine(text, "State:");
  if (const std::string_view word = TakeWord(state); word.size() == 1) status.state = word.front();
  std::string_view threads = StatusLine(text, "Threads:");
  status.threads = ToNumber<int>(TakeWord(threads));
  std::string_view resident = StatusLine(text, "VmRSS:");
  const std::optional<int64_t> kibibytes = ToNumber<int64_t>(TakeWord(resident));
  if (kibibytes && *kibibytes >= 0 && *kibibytes < (int64_t{1} << 50) &&
      TakeWord(resident) == "kB") {
    status.resident_bytes = *kibibytes * 1024;
  }
  return status;
}

std::string ParseWaitChannel(std::string_view text) {
  const std::string_view name = TakeWord(text);
  // "0": it waits nowhere, or we may not know.
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return "";
  // Compilers add ".part.0" and the like.
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  };
  const std::string_view kept = name.substr(0, kMaxWait);
  if (!std::all_of(kept.begin(), kept.end(), is_plain)) return "";
  return std::string(kept.substr(0, kept.find('.')));
}

std::optional<int64_t> ParseCoreWait(std::string_view text) {
  TakeWord(text);  // the time on a core
  const std::optional<int64_t> wait_ns = ToNumber<int64_t>(TakeWord(text));
  return wait_ns && *wait_ns >= 0 ? wait_ns : std::nullopt;
}

std::vector<int> ParseChildren(std::string_view text, size_t most) {
  std::vector<int> children;
  while (children.size() < most) {
    const std::optional<int> pid = ToNumber<int>(TakeWord(text));
    if (!pid || *pid <= 0) break;
    children.push_back(*pid);
  }
  return children;
}

ProcessRates::ProcessRates(int64_t ticks_per_second, int cpus)
    : ticks_per_second_(static_cast<double>(std::max<int64_t>(ticks_per_second, 1))),
      cpus_(std::max(cpus, 1)) {}

void ProcessRates::Add(const ProcessSample& sample) {
  const bool is_same =
      last_ && last_->pid == sample.pid && last_->start_ticks == sample.start_ticks;
  if (!is_same) {
    last_ = sample;
    cpu_.reset();
    core_wait_share_.reset();
    busy_at_ = sample.at;
    return;
  }
  const double seconds = std::chrono::duration<double>(sample.at - last_->at).count();
  if (seconds <= 0) return;
  // A process that nobody waited for takes its time with it.
  const auto ticks = static_cast<double>(std::max<int64_t>(sample.cpu_ticks - last_->cpu_ticks, 0));
  cpu_ = std::min(ticks / ticks_per_second_ / seconds, cpus_);
  if (*cpu_ >= kIdleCores) busy_at_ = sample.at;
  core_wait_share_.reset();
  if (sample.main_pid == last_->main_pid && sample.core_wait_ns && last_->core_wait_ns) {
    const auto wait_ns = static_cast<double>(*sample.core_wait_ns - *last_->core_wait_ns);
    core_wait_share_ = std::clamp(wait_ns / 1e9 / seconds, 0.0, 1.0);
  }
  last_ = sample;
}

std::optional<double> ProcessRates::IdleSeconds(TimePoint now) const {
  if (!cpu_) return std::nullopt;
  if (busy_at_ == last_->at) return 0;
  return std::max(std::chrono::duration<double>(now - busy_at_).count(), 0.0);
}

void FillRank(const ProcessSample* sample, const ProcessRates& rates, TimePoint now,
              RankView& rank) {
  if (sample == nullptr) return;
  rank.cpu = rates.cpu();
  rank.core_wait_share = rates.core_wait_share();
  rank.idle_s = rates.IdleSeconds(now);
  // The kernel may count CPU time by samples, and small loads are less than kIdleCores.
  if (rank.idle_s && rank.step) rank.idle_s = std::clamp(rank.step_age_s, 0.0, *rank.idle_s);
  rank.memory = sample->resident_bytes;
  // What a stopped process was doing before is of no interest.
  const bool is_traced = sample->state == 't';
  const bool is_stopped = sample->state == 'T';
  rank.wait = is_stopped ? "do_signal_stop" : is_traced ? "ptrace_stop" : sample->wait;
}

}  // namespace ddprun::launcher
