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
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/commands/trust.h"
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

bool IsOfCluster(const char* folder) {
  struct statfs found;
  if (statfs(folder, &found) != 0) return false;
  const auto type = static_cast<uint32_t>(found.f_type);
  return std::find(kOfClusters.begin(), kOfClusters.end(), type) != kOfClusters.end() ||
         std::getenv("DDPRUN_TEST_STEP_FOLDER") != nullptr;  // its own disk counts as the cluster's
}

// False: the folder takes no file, or there was no room.
bool WriteNew(const std::string& file, const std::string& text) {
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) return false;
  return write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
         fsync(fd.get()) == 0;
}

}  // namespace

StepToken::StepToken(const LaunchConfig& config, const Environment& environment) {
  const bool is_job_of_step = !config.cluster_line.empty() && !config.cluster.step.empty() &&
                              config.cluster.nodes > 1 && config.nodes.max > 1;
  if (!is_job_of_step || !IsOfCluster(".")) return;
  // A job that is queued again has the numbers of its first run.
  const std::string id(absl::StripPrefix(config.cluster.step, "Slurm step "));
  const std::string run = environment.Get("SLURM_RESTART_COUNT").value_or("0");
  file_ = absl::StrCat(".ddprun-", id, "-", run, ".token");
  const std::string draft = absl::StrCat(file_, ".", config.cluster.node, ".", getpid());
  const std::string token = NewToken();
  if (WriteNew(draft, token + "\n") && link(draft.c_str(), file_.c_str()) == 0) {
    is_ours_ = true;
    text_ = token;
  } else if (errno == EEXIST) {
    absl::StatusOr<std::string> found = ReadTokenFile(file_, file_);
    if (found.ok()) text_ = *std::move(found);
  }
  unlink(draft.c_str());
}

StepToken::~StepToken() {
  if (is_ours_) unlink(file_.c_str());
}

}  // namespace ddprun::launcher
