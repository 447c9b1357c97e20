// Files for other programs, which see all of the new text or all of the old.
#ifndef DDPRUN_LAUNCHER_REPORT_WHOLE_FILE_H_
#define DDPRUN_LAUNCHER_REPORT_WHOLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Writes a temporary file beside `path` and renames it. Where no file can be made or renamed there
// (a container's bind-mounted file) it writes into `path` itself, and where that stands for a
// descriptor of ours (/dev/stderr), behind what stands there. An error names path and cause.
absl::Status WriteWholeFile(const std::string& path, absl::string_view text);

// Writes into a file that is there already and that may be written; otherwise nothing, which is no
// error: nobody has asked for it.
absl::Status WriteIfThere(const std::string& path, absl::string_view text);

// Whether WriteWholeFile could write `path`: it is not there or is a regular file, and it or its
// directory can be written to; or it stands for a descriptor of ours that is open for writing.
// Leaves nothing behind. The error is one line with the path.
absl::Status CheckWritable(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_WHOLE_FILE_H_
