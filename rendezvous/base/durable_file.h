// The parts of writing a file that survives a crash: all of it, then its name.
#ifndef DDPRUN_RENDEZVOUS_BASE_DURABLE_FILE_H_
#define DDPRUN_RENDEZVOUS_BASE_DURABLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// What errno says about a call: `write "/some/path": No space left on device`.
absl::Status FileError(absl::string_view call, absl::string_view path);

// Writes every byte, whatever signals come. An error names `path`, the call and errno.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path);

// Makes what was created, renamed or removed in the directory durable. Errors as above.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_DURABLE_FILE_H_
