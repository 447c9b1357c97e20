// Error files: what a worker writes of its own end where TORCHELASTIC_ERROR_FILE says, in the
// format of PyTorch's @record. Two shapes are known:
//
//   {"message": {"message": M, "extraInfo": {"py_callstack": T, "timestamp": "S"}}}
//   {"message": M, "timestamp": S}
//
// `extraInfo` of the first may have one more member, which our own library writes in a worker that
// ends because another rank left: {"left_peer": RANK}.
//
// A worker may leave anything there, so nothing is believed: sizes and depths are bounded, and what
// is no regular file is not opened for longer than it takes to see that.
#ifndef DDPRUN_LAUNCHER_REPORT_ERROR_FILE_H_
#define DDPRUN_LAUNCHER_REPORT_ERROR_FILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

inline constexpr size_t kMaxErrorFileBytes = 1 << 20;
// What of it is kept; longer texts lose their middle, a traceback's ends say most.
using rendezvous::kMaxErrorMessageBytes;
using rendezvous::kMaxTracebackBytes;

// The file's bytes. NotFound: there is none, or it is empty. Other errors say in one line why it is
// not read: a symbolic link, a directory, a FIFO, too large. Never waits.
absl::StatusOr<std::string> ReadErrorFile(const std::string& path);

struct ErrorFileContent {
  rendezvous::WorkerError error;
  // The rank that left before, which is why the worker ended; nullopt also for what is no rank.
  std::optional<int> left_peer;
};

// What stands in an error file. InvalidArgument: one line on what is wrong.
absl::StatusOr<ErrorFileContent> ParseErrorText(std::string_view text);

// The same text as the error file of whoever started this agent: `exit_code` is added as
// message.errorCode where message is an object, as torchrun does, and left_peer, a rank of this job
// and not of the parent's, is left out. InvalidArgument as above.
absl::StatusOr<std::string> ErrorTextForParent(std::string_view text, int exit_code);

// An error file's text, of a worker whose file is not here: in the first of the shapes.
std::string ErrorTextOf(const rendezvous::WorkerError& error, std::optional<int> exit_code);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_ERROR_FILE_H_
