#include "launcher/report/last_words.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/left_peer_file.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

// @record's files are 3 deep; user code may add to them.
constexpr int kMaxDepth = 32;

bool IsHexEscape(std::string_view text, size_t at, char first_low, char first_high) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return false;
  const char d = text[at + 2];
  const char n = static_cast<char>(text[at + 3] | 0x20);
  return (d == 'd' || d == 'D') && n >= first_low && n <= first_high;
}

// Python writes a file name that is not UTF-8 as half a surrogate pair (surrogateescape), which no
// strict reader takes: such a half becomes the replacement character, pairs stay.
std::string WithoutLoneSurrogates(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i + 1 < out.size();) {
    if (out[i] != '\\') {
      ++i;
      continue;
    }
    const bool is_high = IsHexEscape(out, i, '8', '9') || IsHexEscape(out, i, 'a', 'b');
    const bool is_low = IsHexEscape(out, i, 'c', 'f');
    if (is_high && IsHexEscape(out, i + 6, 'c', 'f')) {
      i += 12;
    } else if (is_high || is_low) {
      out.replace(i, 6, "\\ufffd");
      i += 6;
    } else {
      i += 2;  // an escape of another kind: its second character begins none
    }
  }
  return out;
}

// Null where there is none.
Json Member(const Json& json, const char* name) {
  return json.is_object() ? json.value(name, Json()) : Json();
}

absl::StatusOr<Json> Parse(std::string_view text) {
  bool is_too_deep = false;
  const auto guard = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) is_too_deep = true;
    return depth <= kMaxDepth;
  };
  Json json = Json::parse(WithoutLoneSurrogates(text), guard, /*allow_exceptions=*/false);
  if (is_too_deep) {
    return absl::InvalidArgumentError(absl::StrCat("is nested deeper than ", kMaxDepth));
  }
  if (json.is_discarded()) return absl::InvalidArgumentError("is no valid JSON");
  if (!json.is_object()) return absl::InvalidArgumentError("is no JSON object");
  const Json message = Member(json, "message");
  if (!message.is_string() && !message.is_object()) {
    return absl::InvalidArgumentError("has no \"message\"");
  }
  return json;
}

std::string TextOf(const Json& json) { return json.is_string() ? json.get<std::string>() : ""; }

// Seconds, as a number or in a string; 0 for what is neither or no time.
int64_t TimeOf(const Json& json) {
  constexpr double kMaxTime = 253402300799;  // the end of year 9999
  double value = 0;
  if (json.is_number()) value = json.get<double>();
  if (json.is_string() && !absl::SimpleAtod(json.get<std::string>(), &value)) return 0;
  return value > 0 && value <= kMaxTime ? static_cast<int64_t>(value) : 0;
}

// A whole number that may be a rank; nullopt for everything else.
std::optional<int> RankOf(const Json& json) {
  constexpr uint64_t kMaxRank = 1 << 24;
  if (!json.is_number_unsigned() || json.get<uint64_t>() > kMaxRank) return std::nullopt;
  return json.get<int>();
}

// At most `max` bytes, the first quarter and the last three.
std::string WithoutMiddle(std::string text, size_t max) {
  if (text.size() <= max) return text;
  constexpr size_t kMarkRoom = 64;
  const size_t head = max / 4;
  const size_t tail = max - head - kMarkRoom;
  const size_t cut = text.size() - head - tail;
  return absl::StrCat(text.substr(0, head), "\n... ", cut, " bytes left out ...\n",
                      text.substr(text.size() - tail));
}

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
// Between the tracebacks of a chain of exceptions.
constexpr std::array<std::string_view, 2> kChain = {
    "During handling of the above exception, another exception occurred:\n\n",
    "The above exception was the direct cause of the following exception:\n\n"};

// An exception's text may have several lines.
constexpr size_t kMostExceptionLines = 10;
// How PyTorch, Gloo, NCCL, stores and sockets say it, in lower case.
constexpr std::array<std::string_view, 13> kLostConnection = {
    "connection",       "broken pipe", "peer",     "nccl",      "gloo",    "left the",
    "process group",    "socket",      "eoferror", "timed out", "timeout", "recv",
    "torch.distributed"};

// Of one or several tracebacks the lines that are no frames: exceptions, and what is in between.
std::vector<std::string> ExceptionLines(std::string_view tracebacks) {
  const std::string text(tracebacks);
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::erase_if(lines, [](const std::string& line) { return line.front() == ' '; });
  return lines;
}

// Where the last traceback begins, or the first of those that it is chained to.
size_t BeginOfTracebacks(std::string_view tail) {
  size_t at = tail.rfind(kTraceback);
  while (at != std::string_view::npos && at > 0) {
    const std::string_view before = tail.substr(0, at);
    const bool is_chained = std::ranges::any_of(
        kChain, [before](std::string_view words) { return before.ends_with(words); });
    const size_t earlier = before.rfind(kTraceback);
    if (!is_chained || earlier == std::string_view::npos) break;
    at = earlier;
  }
  return at;
}

// Of the traceback that `tail` ends in, and of those that it is chained to. None: it ends in none.
std::optional<std::string> LastExceptions(std::string_view tail) {
  const size_t last = tail.rfind(kTraceback);
  if (last == std::string_view::npos) return std::nullopt;
  // What is far from its end was handled: the program has gone on.
  if (ExceptionLines(tail.substr(last)).size() > 1 + kMostExceptionLines) return std::nullopt;
  return absl::StrJoin(ExceptionLines(tail.substr(BeginOfTracebacks(tail))), "\n");
}

// How much of a failing worker's stderr is read, for a traceback may be long, and how much is kept.
constexpr size_t kReadLines = 200;
constexpr size_t kTailLines = 50;
constexpr Duration kTailsTimeout = std::chrono::milliseconds(500);

bool IsBetween(char c, char first, char last) { return c >= first && c <= last; }

// Behind the escape sequence that begins at `at`; `at` where none does.
size_t EndOfSequence(const std::string& text, size_t at) {
  size_t end = at + 1;
  if (end >= text.size()) return at;
  if (text[end] == ']') {  // a title or a link: it ends with BEL or ESC and a backslash
    for (++end; end < text.size() && text[end] != '\n'; ++end) {
      if (text[end] == '\a') return end + 1;
      if (text[end] == '\x1b') return text.compare(end, 2, "\x1b\\") == 0 ? end + 2 : at;
    }
    return at;
  }
  const bool is_csi = text[end] == '[';
  if (!is_csi && !IsBetween(text[end], 0x20, 0x2f)) return at;
  if (is_csi) ++end;
  while (end < text.size() && IsBetween(text[end], 0x20, is_csi ? 0x3f : 0x2f)) ++end;
  return end < text.size() && IsBetween(text[end], is_csi ? 0x40 : 0x30, 0x7e) ? end + 1 : at;
}

std::string NoteBeside(const std::string& error_file) {
  return error_file + ddp::internal::kLeftPeerFileSuffix;
}

// True: what was too large has been removed.
bool ReadErrorFileOf(LastWords& words, FolderOwner owner) {
  rendezvous::FailureReport& report = words.report;
  const std::string path = std::exchange(report.error_file, "");
  if (path.empty() || report.pid == 0) return false;
  const absl::StatusOr<std::string> text = ReadErrorFile(path);
  const std::optional<LeftPeerNote> note = ReadLeftPeerNote(path);
  if (note) unlink(NoteBeside(path).c_str());
  if (absl::IsNotFound(text.status())) {
    if (note) report.left_peer = note->peer;
    return false;
  }
  const absl::Status status = text.ok() ? ParseErrorText(*text, report) : text.status();
  bool is_removed = false;
  if (report.left_peer) {
    unlink(path.c_str());  // a note of our own library for us: nobody would remove it
  } else {
    if (note && (!status.ok() || IsOf(*note, *report.error))) report.left_peer = note->peer;
    const bool is_ours = owner == FolderOwner::kDdprun;
    is_removed = is_ours && absl::IsOutOfRange(status) && unlink(path.c_str()) == 0;
    if (!is_ours) report.error_file = path;
  }
  if (!status.ok()) {
    words.warning = absl::StrCat(
        "warning: the error file of rank ", report.rank, ", ", EscapeControl(path), ", ",
        status.message(),
        is_removed ? "; it is removed, as --log-dir names no folder to keep it in" : "");
  } else {
    report.error->message = WithoutEscapeSequences(report.error->message);
    report.error->traceback = WithoutEscapeSequences(report.error->traceback);
  }
  return is_removed;
}

}  // namespace

absl::StatusOr<std::string> ReadErrorFile(const std::string& path) {
  // O_NONBLOCK: a FIFO would wait for its writer.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError("there is none");
    if (errno == ELOOP) return absl::FailedPreconditionError("is a symbolic link");
    return absl::ErrnoToStatus(errno, "cannot be opened");
  }
  struct stat about {};
  if (fstat(fd.get(), &about) != 0) return absl::ErrnoToStatus(errno, "cannot be looked at");
  if (!S_ISREG(about.st_mode)) return absl::FailedPreconditionError("is no regular file");
  std::string text(kMaxErrorFileBytes + 1, '\0');
  size_t size = 0;
  while (const ssize_t got = read(fd.get(), text.data() + size, text.size() - size)) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    size += static_cast<size_t>(got);
  }
  if (size > kMaxErrorFileBytes) {
    return absl::OutOfRangeError(absl::StrCat("is larger than ", kMaxErrorFileBytes, " bytes"));
  }
  text.resize(size);
  // A worker on a full disk makes the file and cannot fill it.
  if (text.empty()) return absl::NotFoundError("is empty");
  return text;
}

std::optional<LeftPeerNote> ReadLeftPeerNote(const std::string& error_file) {
  const absl::StatusOr<std::string> text = ReadErrorFile(NoteBeside(error_file));
  rendezvous::FailureReport note;
  if (!text.ok() || !ParseErrorText(*text, note).ok() || !note.left_peer) return std::nullopt;
  // "rank 1 left the job: REASON"
  const std::string& message = note.error->message;
  const size_t colon = message.find(": ");
  return LeftPeerNote{*note.left_peer,
                      colon == std::string::npos ? message : message.substr(colon + 2)};
}

bool IsOf(const LeftPeerNote& note, const rendezvous::WorkerError& error) {
  return error.message.find(note.reason) != std::string::npos ||
         error.traceback.find(note.reason) != std::string::npos;
}

absl::Status ParseErrorText(std::string_view text, rendezvous::FailureReport& report) {
  const absl::StatusOr<Json> json = Parse(text);
  if (!json.ok()) return json.status();
  const Json message = Member(*json, "message");
  rendezvous::WorkerError& error = report.error.emplace();
  if (message.is_string()) {
    error.message = TextOf(message);
    error.unix_time_s = TimeOf(Member(*json, "timestamp"));
  } else {
    const Json extra = Member(message, "extraInfo");
    error.message = TextOf(Member(message, "message"));
    error.traceback = TextOf(Member(extra, "py_callstack"));
    error.unix_time_s = TimeOf(Member(extra, "timestamp"));
    report.left_peer = RankOf(Member(extra, "left_peer"));
  }
  error.message = WithoutMiddle(std::move(error.message), kMaxErrorMessageBytes);
  error.traceback = WithoutMiddle(std::move(error.traceback), kMaxTracebackBytes);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ErrorTextForParent(std::string_view text, int exit_code) {
  absl::StatusOr<Json> json = Parse(text);
  if (!json.ok()) return json.status();
  Json& message = (*json)["message"];
  if (message.is_object()) {
    message["errorCode"] = exit_code;
    const auto extra = message.find("extraInfo");
    if (extra != message.end() && extra->is_object()) extra->erase("left_peer");
  }
  // ASCII, as Python's json writes it.
  return json->dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string ErrorTextOf(const rendezvous::WorkerError& error, std::optional<int> exit_code) {
  Json json = {
      {"message",
       {{"message", error.message},
        {"extraInfo",
         {{"py_callstack", error.traceback}, {"timestamp", absl::StrCat(error.unix_time_s)}}}}}};
  if (exit_code) json["message"]["errorCode"] = *exit_code;
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string WithoutEscapeSequences(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = text[i] == '\x1b' ? EndOfSequence(text, i) : i;
    if (end > i) {
      i = end;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::string LastLines(const std::string& text, size_t count) {
  size_t begin = text.size();
  for (; begin > 0; --begin) {
    const bool is_line = begin < text.size() && text[begin - 1] == '\n';
    if (is_line && --count == 0) break;
  }
  return text.substr(begin);
}

bool TellsOfLostConnection(std::string_view exception) {
  std::string text(exception);
  absl::AsciiStrToLower(&text);
  return std::ranges::any_of(
      kLostConnection, [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool EndsInTraceback(std::string_view tail) {
  const std::optional<std::string> exceptions = LastExceptions(tail);
  return exceptions && !TellsOfLostConnection(*exceptions);
}

bool EndsInLostConnection(std::string_view tail) {
  const std::optional<std::string> exceptions = LastExceptions(tail);
  return exceptions && TellsOfLostConnection(*exceptions);
}

bool HasOwnCause(const rendezvous::FailureReport& report) {
  if (report.left_peer) return false;
  // No lost peer ends a process so. By SIGSEGV or SIGBUS it may, while it takes its group down.
  if (report.signal == SIGKILL || report.signal == SIGILL || report.signal == SIGFPE) return true;
  if (!report.error) return EndsInTraceback(report.stderr_tail);
  return !TellsOfLostConnection(report.error->message) &&
         !EndsInLostConnection(report.error->traceback);
}

std::vector<LastWords> ReadLastWords(std::vector<LastWords> dead, size_t room,
                                     const TailReader& tail, FolderOwner owner) {
  Duration left = kTailsTimeout;
  for (LastWords& words : dead) {
    const TimePoint begin = SteadyNow();
    rendezvous::FailureReport& report = words.report;
    const bool is_removed = ReadErrorFileOf(words, owner);
    if (room == 0) {
      words.is_left_out = !words.is_failure && (report.error || !report.error_file.empty());
      report.error.reset();
      report.error_file.clear();
      if (!is_removed) words.warning.clear();
      continue;
    }
    words.is_failure = words.is_failure || report.error;
    if (words.is_failure) {
      const Duration patience = std::clamp(left, Duration::zero(), kTailTimeout);
      report.stderr_tail = WithoutEscapeSequences(tail(report.local_rank, kReadLines, patience));
      report.has_own_cause = HasOwnCause(report);
      report.stderr_tail = LastLines(report.stderr_tail, kTailLines);
      --room;
    }
    left -= SteadyNow() - begin;
  }
  return dead;
}

}  // namespace ddprun::launcher
