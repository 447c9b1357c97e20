#include "worker_runtime/comm/left_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_runtime/left_peer_file.h"

namespace ddp::internal {
namespace {

constexpr char kMark[] = "ddp/left-peer";
constexpr char kMember[] = R"("left_peer": )";
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// As long as the agent waits for a signal of its own before it judges a worker's death by one.
constexpr milliseconds kWayOut(250);
// Of the agent's limit for the whole message, 4 KiB, what its escapes leave.
constexpr size_t kMaxReasonBytes = 2048;

// What EscapeControl leaves is UTF-8 without control characters but for the tab.
std::string JsonText(const std::string& text) {
  return absl::StrReplaceAll(ddprun::EscapeControl(text),
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\t", "\\t"}});
}

std::string ErrorText(const absl::Status& status, int left_peer) {
  std::string reason(status.message());
  reason.resize(ddprun::CharacterStart(reason, kMaxReasonBytes));
  // No py_callstack: both launchers show the message where there is none.
  return absl::StrCat(
      R"({"message": {"message": "rank )", left_peer,
      absl::IsAborted(status) ? " ended the group: " : " left the job: ", JsonText(reason),
      R"(", "extraInfo": {"timestamp": ")", time(nullptr), "\", ", kMember, left_peer, "}}}");
}

// By a file that has no name until it has all of its text: the launcher may end this process on the
// way, and nothing is left then. False where the file system has no such files.
bool LinkNewFile(const std::string& path, const std::string& text) {
  const std::string directory = path.substr(0, path.rfind('/') + 1) + ".";
  const ddprun::UniqueFd file(open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!file.is_open() || !ddprun::WriteAll(file.get(), text, path).ok()) return false;
  const std::string unnamed = absl::StrCat("/proc/self/fd/", file.get());
  return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

// Whoever reads `path` sees all of the text or no file; one that is there stays.
void WriteNewFile(const std::string& path, const std::string& text) {
  if (access(path.c_str(), F_OK) == 0 || LinkNewFile(path, text)) return;
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".new");
  const ddprun::UniqueFd file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return;
  const bool is_whole = ddprun::WriteAll(file.get(), text, temporary).ok();
  // A link, unlike a rename, replaces nothing; not every file system has it.
  if (is_whole && link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    (void)rename(temporary.c_str(), path.c_str());
  }
  (void)unlink(temporary.c_str());
}

// An error file that is there says what this process ended by itself.
void WriteNote(const std::string& error_file, const std::string& text) {
  struct stat about {};
  if (lstat(error_file.c_str(), &about) == 0) return;
  WriteNewFile(error_file + kLeftPeerFileSuffix, text);
  WriteNewFile(error_file, text);
}

// A process that is not there, or is our own (ranks that are threads), is not waited for.
void AwaitEnd(pid_t pid, Clock::time_point deadline) {
  if (pid <= 0 || pid == getpid()) return;
  const ddprun::UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) return;
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  int count = -1;
  do {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return;
    count = poll(&ended, 1, static_cast<int>(left));
  } while (count < 0 && errno == EINTR);
}

}  // namespace

absl::Status WithLeftPeer(absl::Status status, std::optional<int> rank) {
  if (rank.has_value()) status.SetPayload(kMark, absl::Cord(absl::StrCat(*rank)));
  return status;
}

std::optional<int> LeftPeerOf(const absl::Status& status) {
  const auto mark = status.GetPayload(kMark);
  int rank = -1;
  if (!mark.has_value() || !absl::SimpleAtoi(std::string(*mark), &rank)) return std::nullopt;
  return rank;
}

// In a message the quotes are escaped.
std::optional<int> LeftPeerOfNote(std::string_view text) {
  const size_t at = text.rfind(kMember);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + sizeof(kMember) - 1);
  int rank = -1;
  if (!absl::SimpleAtoi(std::string(text.substr(0, text.find('}'))), &rank)) return std::nullopt;
  return rank;
}

absl::Status LeftPeerNote::Told(absl::Status status) {
  const std::optional<int> left_peer = LeftPeerOf(status);
  if (!left_peer) return status;
  status.ErasePayload(kMark);
  if (*left_peer == rank_ || error_file_.empty()) return status;
  const std::lock_guard lock(mutex_);
  if (std::exchange(has_told_, true)) return status;
  // A local file system takes this long when others write gigabytes to it, and an interpreter to
  // end on a busy machine.
  const Clock::time_point deadline = Clock::now() + kPatience;
  const size_t place = static_cast<size_t>(*left_peer);
  const int in_job = place < job_ranks_.size() ? job_ranks_[place] : *left_peer;
  // On a thread of its own: the file system may be what hangs. Without a thread there is no note.
  const auto written = std::make_shared<std::promise<void>>();
  std::thread writer =
      ddprun::StartQuietThread([written, path = error_file_, text = ErrorText(status, in_job)] {
        WriteNote(path, text);
        written->set_value();
      });
  if (!writer.joinable()) return status;
  writer.detach();
  (void)written->get_future().wait_until(deadline);
  // The rank that left may still be on its way out. What the agent sees end first it takes for the
  // cause, and it stops the rest.
  std::this_thread::sleep_until(std::min(Clock::now() + kWayOut, deadline));
  if (process_of_ != nullptr) AwaitEnd(process_of_(*left_peer), deadline);
  return status;
}

}  // namespace ddp::internal
