// What workers that have ended left behind: the last lines of their stderr and their error files.
// Reading it may take as long as a file system and the log thread like: never on the agent's
// thread.
//
// An error file is what a worker writes of its own end where TORCHELASTIC_ERROR_FILE says, in the
// format of PyTorch's @record. Two shapes are known:
//
//   {"message": {"message": M, "extraInfo": {"py_callstack": T, "timestamp": "S"}}}
//   {"message": M, "timestamp": S}
//
// `extraInfo` of the first may have one more member, which our own library writes in a worker that
// ends because another rank left: {"left_peer": RANK}.
//
// It writes the same into a file beside that one (worker_runtime/left_peer_file.h). That file
// counts where @record has replaced the error file by what became of that error.
//
// A worker may leave anything there, so nothing is believed: sizes and depths are bounded, and what
// is no regular file is not opened for longer than it takes to see that.
#ifndef DDPRUN_LAUNCHER_REPORT_LAST_WORDS_H_
#define DDPRUN_LAUNCHER_REPORT_LAST_WORDS_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/report/job_record.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

inline constexpr size_t kMaxErrorFileBytes = 1 << 20;
// What of it is kept; longer texts lose their middle, a traceback's ends say most.
using rendezvous::kMaxErrorMessageBytes;
using rendezvous::kMaxTracebackBytes;

// The file's bytes. NotFound: there is none, or it is empty. OutOfRange: it is too large. All
// errors say in one line why it is not read: a symbolic link, a directory, a FIFO. Never waits.
absl::StatusOr<std::string> ReadErrorFile(const std::string& path);

// The note beside an error file.
struct LeftPeerNote {
  int peer = 0;        // the rank that left
  std::string reason;  // the error that this process got of it
};
std::optional<LeftPeerNote> ReadLeftPeerNote(const std::string& error_file);
// Whether the worker ended by that error: it may have caught it, gone on, and failed later of
// something else.
bool IsOf(const LeftPeerNote& note, const rendezvous::WorkerError& error);

// What stands in an error file becomes the report's `error` and `left_peer`. InvalidArgument: one
// line on what is wrong.
absl::Status ParseErrorText(std::string_view text, rendezvous::FailureReport& report);

// The same text as the error file of whoever started this agent: `exit_code` is added as
// message.errorCode where message is an object, as torchrun does, and left_peer, a rank of this job
// and not of the parent's, is left out. InvalidArgument as above.
absl::StatusOr<std::string> ErrorTextForParent(std::string_view text, int exit_code);

// An error file's text, of a worker whose file is not here: in the first of the shapes.
std::string ErrorTextOf(const rendezvous::WorkerError& error, std::optional<int> exit_code);

// How long dead workers' last lines are waited for: a grandchild may hold the pipe open.
inline constexpr Duration kTailTimeout = std::chrono::milliseconds(100);

// The last `max_lines` lines of a worker's stderr, waited for `timeout` at most
// (LogRouter::StderrTail).
using TailReader = std::function<std::string(int local_rank, size_t max_lines, Duration timeout)>;

// `text` without what steers a terminal: sequences that begin with ESC [, ESC ] or an intermediate
// character, as Python's coloured tracebacks have them. One that does not end stays.
std::string WithoutEscapeSequences(const std::string& text);

// The last `count` lines of the text.
std::string LastLines(const std::string& text, size_t count);

// Whether the text has a word of PyTorch, Gloo, NCCL, stores or sockets for it.
bool TellsOfLostConnection(std::string_view text);
// Whether the last that was written is a traceback of Python's with its exception, and neither that
// nor one that it is chained to tells of a lost connection.
bool EndsInTraceback(std::string_view tail);
// Whether it is one of those that do.
bool EndsInLostConnection(std::string_view tail);

// Whether the worker's end follows from no other's: it was killed by SIGKILL, SIGILL or SIGFPE, or
// it wrote an exception that is no lost connection, into its error file or at the end of its
// stderr.
bool HasOwnCause(const rendezvous::FailureReport& report);

// Whose the folder is in which error files are.
enum class FolderOwner {
  kUser,    // named by --log_dir, or with log files in it: what is in it stays
  kDdprun,  // a temporary one for error files alone, mostly of memory: it goes with the job
};

// `dead` with the texts of the first `room` failures among them. The tails of all are waited for
// half a second together. An error file that says that a peer left is removed, and so is the note
// beside one; in a folder of ours one that is too large to be read is, too. The report names a file
// that stays.
std::vector<LastWords> ReadLastWords(std::vector<LastWords> dead, size_t room,
                                     const TailReader& tail, FolderOwner owner);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_LAST_WORDS_H_
