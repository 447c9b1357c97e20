// Tells what a process left behind from what a living one still uses, by a name.
#ifndef DDPRUN_LAUNCHER_PROCESS_OWNER_TAG_H_
#define DDPRUN_LAUNCHER_PROCESS_OWNER_TAG_H_

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

// The text of a file of /proc; "" where it cannot be read.
std::string ReadProcFile(const std::string& path);

// "<home>-<pid>" of the process, where <home> is a hash of the machine's boot and our pid
// namespace: the same pid elsewhere is somebody else. "" where /proc does not tell.
std::string OwnerTag(pid_t pid = getpid());

// Whether `tag` names a process of this boot and pid namespace that has gone. False for whatever is
// no tag, or one from elsewhere, of which nothing can be known. A pid that another process has by
// now counts as living: to be certain would take a file of /proc for each that lives.
bool IsOwnerGone(std::string_view tag);

// The directories of this user, among the first 1,000 entries of `parent`, whose owner has gone.
// The search ends early where many owners live: it costs each of them, and there will be another.
// What is from elsewhere or from before a boot, and so stays for ever, does not end it.
// `tag_of` finds the tag in a name; "": there is none.
std::vector<std::string> AbandonedIn(
    const std::string& parent, const std::function<std::string_view(std::string_view)>& tag_of);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_OWNER_TAG_H_
