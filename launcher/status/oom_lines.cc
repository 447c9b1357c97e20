#include "launcher/status/oom_lines.h"

#include <charconv>

namespace ddprun::launcher {
namespace {

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int64_t> TakeNumber(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

}  // namespace

std::string_view KernelText(std::string_view record) {
  const bool is_syslog = TakePrefix(record, "<");
  const std::optional<int64_t> priority = TakeNumber(record);
  constexpr int kLevels = 8;  // above them is the facility: 0 is the kernel
  if (!priority || *priority >= kLevels) return {};
  if (is_syslog) {
    if (!TakePrefix(record, ">")) return {};
    // The time, and on some kernels who was speaking.
    while (!record.empty() && record.front() == '[') {
      const size_t end = record.find("] ");
      if (end == std::string_view::npos) return {};
      record.remove_prefix(end + 2);
    }
    return record;
  }
  const size_t begin = record.find(';');
  if (begin == std::string_view::npos) return {};
  return record.substr(begin + 1);
}

std::optional<OomKill> ParseOomKill(std::string_view text) {
  OomKill kill;
  // "Out of memory", "Memory cgroup out of memory", either with more behind it.
  if (TakePrefix(text, "Memory cgroup out of memory")) {
    kill.scope = OomKill::Scope::kCgroup;
  } else if (TakePrefix(text, "Out of memory")) {
    kill.scope = OomKill::Scope::kMachine;
  }
  if (kill.scope != OomKill::Scope::kUnknown) {
    const size_t end = text.find(": ");
    if (end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end + 2);
  }
  if (!TakePrefix(text, "Killed process ")) return std::nullopt;
  const std::optional<int64_t> pid = TakeNumber(text);
  if (!pid || *pid <= 0 || *pid > (int64_t{1} << 30)) return std::nullopt;
  kill.pid = static_cast<int>(*pid);
  // Its name, of 15 bytes, could be "(a) anon-rss:9": nothing behind the last such is its.
  constexpr std::string_view kKey = "anon-rss:";
  if (const size_t at = text.rfind(kKey); at != std::string_view::npos) {
    text.remove_prefix(at + kKey.size());
    const std::optional<int64_t> kibibytes = TakeNumber(text);
    if (kibibytes && *kibibytes < (int64_t{1} << 50)) kill.anonymous_bytes = *kibibytes * 1024;
  }
  return kill;
}

}  // namespace ddprun::launcher
