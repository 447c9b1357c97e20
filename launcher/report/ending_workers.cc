#include "launcher/report/ending_workers.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/process/owner_tag.h"
#include "launcher/process/process.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kExitingFlag = 0x4;
// What a program that is no Python writes of its end.
constexpr size_t kLastLines = 5;

// What the worker says of why it ends. None: nothing.
std::optional<bool> SaysOwnCause(const std::string& error_file, std::string_view words) {
  if (!error_file.empty()) {
    const std::optional<LeftPeerNote> note = ReadLeftPeerNote(error_file);
    const absl::StatusOr<std::string> text = ReadErrorFile(error_file);
    rendezvous::FailureReport report;
    if (text.ok() && ParseErrorText(*text, report).ok()) {
      return HasOwnCause(report) && !(note && IsOf(*note, *report.error));
    }
    if (note) return false;
  }
  if (EndsInLostConnection(words)) return false;
  return EndsInTraceback(words) ? std::optional(true) : std::nullopt;
}

// Of a process whose descriptors cannot be read: as if it had some.
bool HasSocket(const std::string& folder) {
  const auto is_socket = [](std::string_view link) { return link.starts_with("socket:"); };
  return HasOpenFile(folder, is_socket).value_or(true);
}

}  // namespace

bool TellsOfLostPeer(const std::string& error_file, std::string_view words) {
  const std::optional<bool> says_own = SaysOwnCause(error_file, words);
  return says_own ? !*says_own : TellsOfLostConnection(LastLines(std::string(words), kLastLines));
}

bool IsExiting(std::string_view stat) {
  // The name, field 2, may hold blanks and brackets; fields 3 to 9 follow it.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return false;
  const absl::string_view rest(stat.data() + name_end + 1, stat.size() - name_end - 1);
  const std::vector<absl::string_view> fields = absl::StrSplit(rest, ' ', absl::SkipEmpty());
  uint64_t flags = 0;
  uint32_t status = 0;
  if (fields.size() < 50 || !absl::SimpleAtoi(fields[6], &flags)) return false;
  if (!absl::SimpleAtoi(fields[49], &status)) return false;
  return (flags & kExitingFlag) != 0 && (status & 0x7f) != SIGABRT;
}

std::set<int> EndingWorkers(const std::vector<LivingWorker>& workers, const TailReader& tail,
                            const std::string& proc) {
  std::set<int> ending;
  std::set<int> without_socket;
  for (const LivingWorker& worker : workers) {
    const std::string folder = proc + "/" + std::to_string(worker.pid);
    const std::string words = tail(worker.local_rank, kEndingTailLines, kTailTimeout);
    const std::optional<bool> says_own = SaysOwnCause(worker.error_file, words);
    if (says_own == false) continue;
    if (says_own || IsExiting(ReadProcFile(folder + "/stat"))) {
      ending.insert(worker.local_rank);
    } else if (!HasSocket(folder)) {
      without_socket.insert(worker.local_rank);
    }
  }
  // Of two, or of several, it is not known whether they have ever had one.
  if (without_socket.size() == 1 && workers.size() >= 3) ending.merge(without_socket);
  return ending;
}

}  // namespace ddprun::launcher
