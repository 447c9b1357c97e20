#include "launcher/commands/step_token.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/commands/trust.h"
#include "launcher/process/process_baseline.h"
#include "launcher/test_gates.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// statfs(2), and what the makers of file systems that the kernel does not bring write there.
constexpr uint32_t kLustre = 0x0BD00BD0, kGpfs = 0x47504653, kBeeGfs = 0x19830326,
                   kWeka = 0x18031977, kOrangeFs = 0x20030528, kSmb2 = 0xFE534D42;
constexpr std::array<uint32_t, 9> kOfClusters = {NFS_SUPER_MAGIC,
                                                 CEPH_SUPER_MAGIC,
                                                 SMB_SUPER_MAGIC,
                                                 kLustre,
                                                 kGpfs,
                                                 kBeeGfs,
                                                 kWeka,
                                                 kOrangeFs,
                                                 kSmb2};

// Closed: the folder takes no file, or there was no room.
UniqueFd WriteNew(const std::string& file, const std::string& text) {
  UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const auto size = static_cast<ssize_t>(text.size());
  if (write(fd.get(), text.data(), text.size()) != size || fsync(fd.get()) != 0) fd.Reset();
  return fd;
}

// How many names the file has. 0: others have removed it.
nlink_t NamesOf(const UniqueFd& fd) {
  struct stat found;
  return fstat(fd.get(), &found) == 0 ? found.st_nlink : 0;
}

// Makes `name` another name of the file at `path`, which is open as `fd`, unless it is one of
// another file (EEXIST).
bool IsLinked(const UniqueFd& fd, const std::string& path, const std::string& name) {
  if (linkat(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
  // Over NFS the answer may be lost, and the next one says that the name is there (open(2)).
  const int error = errno;
  if (NamesOf(fd) == 2) return true;
  errno = error;
  return false;
}

}  // namespace

bool IsSharedByCluster(const char* folder) {
  if (IsAnyDiskSharedForTest()) return true;
  struct statfs found;
  if (statfs(folder, &found) != 0) return false;
  const auto type = static_cast<uint32_t>(found.f_type);
  return std::find(kOfClusters.begin(), kOfClusters.end(), type) != kOfClusters.end();
}

absl::StatusOr<std::unique_ptr<StepToken>> StepToken::Take(const LaunchConfig& config,
                                                           const Environment& environment,
                                                           bool (*is_shared)(const char* folder)) {
  auto taken = std::unique_ptr<StepToken>(new StepToken);
  const bool is_job_of_step = !config.cluster_line.empty() && !config.cluster.step.empty() &&
                              config.cluster.nodes > 1 && config.nodes.max > 1;
  const bool is_workers = environment.Get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1";
  if (!is_job_of_step || is_workers || !is_shared(".")) return taken;
  // A job that is queued again has the numbers of its first run.
  const std::string id(absl::StripPrefix(config.cluster.step, "Slurm step "));
  const std::string run = environment.Get("SLURM_RESTART_COUNT").value_or("0");
  taken->file_ = absl::StrCat(".ddprun-", id, "-", run, ".token");
  const std::string source = "the step's token";
  LeaveNoCore();
  // Where others may write to the folder, they can neither know this name before nor have another
  // file taken for ours by it, nor have this node go on without a token because ours has gone.
  const std::string draft = absl::StrCat(taken->file_, ".", NewToken().substr(0, 16));
  const UniqueFd fd = WriteNew(draft, NewToken() + "\n");
  const std::string path = absl::StrCat("/proc/self/fd/", fd.get());
  // As the others will find it: a server may change who owns a file, and who may read it.
  const bool is_kept = fd.is_open() && ReadTokenFile(path, source, Links::kFollowed).ok();
  const bool is_first = is_kept && IsLinked(fd, path, taken->file_);
  const int error = is_kept && !is_first ? errno : 0;
  const bool is_second = error == EEXIST;
  // A server's client may count names by what it heard before; what the server refuses is newer.
  bool is_gone = fd.is_open() && (error == ENOENT || error == ESTALE || NamesOf(fd) == 0);
  if (unlink(draft.c_str()) != 0 && errno == ENOENT && fd.is_open()) is_gone = true;
  taken->is_ours_ = is_first;
  if (is_gone) {
    return absl::PermissionDeniedError(absl::StrCat(
        source, " ", draft, ": somebody has removed the file while this node made it; start the ",
        "step in a folder that others cannot write to, or give a token"));
  }
  if (!is_first && !is_second) return taken;
  absl::StatusOr<std::string> found = ReadTokenFile(taken->file_, source, Links::kRefused);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat(found.status().message(),
                                     "; another file of that name must go, or give a token, or "
                                     "--no-cluster and the options of the job"));
  }
  taken->text_ = *std::move(found);
  return taken;
}

StepToken::~StepToken() {
  if (is_ours_) unlink(file_.c_str());
}

}  // namespace ddprun::launcher
