// By what this node proves that it is of its job.
#ifndef DDPRUN_LAUNCHER_COMMANDS_TRUST_H_
#define DDPRUN_LAUNCHER_COMMANDS_TRUST_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/tls/identity.h"

namespace ddprun::launcher {

// From the files, or else from `token`, DDPRUN_TOKEN's value, which is refused when it is empty:
// who sets it wants one. Null: the user gave neither. Waits at most 5 s for a token that comes
// through a pipe. No error quotes a token. From before a file is read this process leaves no core
// dump (LeaveNoCore).
absl::StatusOr<std::shared_ptr<const rendezvous::TlsIdentity>> IdentityOf(
    const TrustFiles& files, const std::optional<std::string>& token);

// What is warned of where no user is told (PeerUsers), and a store on loopback is not the
// network's.
inline constexpr char kNobodyKnownText[] =
    "the kernel does not say who owns a connection on loopback (it has neither sock_diag nor "
    "/proc/net/tcp). Other users of this machine can reach the job: use a machine without them";

// Why others than this user and root may read the file, or know what is in it. Ok, too, where it
// cannot be opened: whoever reads it says why.
absl::Status CheckKeyFile(const std::string& name);

// 64 hexadecimal digits, drawn by the kernel.
std::string NewToken();
// Whether the file may be behind a symbolic link: whoever may write to its folder can make one that
// leads to another file of this user.
enum class Links { kFollowed, kRefused };
// The token in the file. No error quotes it; `source` is what they call the option.
absl::StatusOr<std::string> ReadTokenFile(const std::string& name, const std::string& source,
                                          Links links);

// `ddprun token new`: prints a token. Returns the exit code of ddprun.
int PrintNewToken();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_COMMANDS_TRUST_H_
