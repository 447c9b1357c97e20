// Opens files for writing where others may put links: a symbolic link of another user's is not
// followed, so that nobody has our user write where they cannot.
#ifndef DDPRUN_LAUNCHER_REPORT_OWN_LINKS_H_
#define DDPRUN_LAUNCHER_REPORT_OWN_LINKS_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// As open(2), which follows links of this user's and of root's only: of the last part of `path`,
// and of what it points to. PERMISSION_DENIED names another's. Folders on the way are followed
// whoever made them.
absl::StatusOr<UniqueFd> OpenOwn(const std::string& path, int flags, mode_t mode = 0);

// The number of this process's own descriptor that `path` stands for: /dev/stderr, /dev/fd/3,
// /proc/self/fd/3, or a link of this user's or of root's to one of them. Empty: it is none. What
// the descriptor leads to is not ours to open anew: a log file behind it, which others write to,
// would be emptied, or written over.
std::optional<int> OwnDescriptor(const std::string& path);

// What OpenOwn would open or make in the end: `path`, or what the links there lead to.
absl::StatusOr<std::string> EndOfOwnLinks(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_OWN_LINKS_H_
