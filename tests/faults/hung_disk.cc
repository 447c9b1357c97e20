#include "tests/faults/hung_disk.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

// More than any request has that we let come: FUSE wants room for one of the largest.
constexpr size_t kRequestRoom = 1 << 17;

std::string Failed(const std::string& what) { return what + ": " + std::strerror(errno); }

// The mount is seen by nobody else, and goes with us.
bool LeaveMounts() {
  thread_local const bool has_left =
      unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return has_left;
}

void AnswerInit(int device, const fuse_in_header& request, const fuse_init_in& asked) {
  fuse_init_out answer{};
  answer.major = FUSE_KERNEL_VERSION;
  answer.minor = std::min<uint32_t>(asked.minor, FUSE_KERNEL_MINOR_VERSION);
  answer.max_write = 4096;
  fuse_out_header header{
      .len = sizeof(header) + sizeof(answer), .error = 0, .unique = request.unique};
  const iovec parts[] = {{&header, sizeof(header)}, {&answer, sizeof(answer)}};
  const ssize_t size = writev(device, parts, 2);
  // Of a mount that has been removed meanwhile the next read tells.
  const bool is_aborted = size < 0 && (errno == ENOENT || errno == ENODEV || errno == ENOTCONN ||
                                       errno == ECONNABORTED);
  DDP_CHECK(size == static_cast<ssize_t>(header.len) || is_aborted);
}

}  // namespace

std::unique_ptr<HungDisk> HungDisk::Mount(const std::string& folder, std::string* why) {
  UniqueFd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device.is_open()) {
    *why = Failed("open /dev/fuse");
    return nullptr;
  }
  if (!LeaveMounts()) {
    *why = Failed("mounts of our own");
    return nullptr;
  }
  const std::string options = "fd=" + std::to_string(device.get()) +
                              ",rootmode=40000,user_id=" + std::to_string(getuid()) +
                              ",group_id=" + std::to_string(getgid());
  if (mount("hung", folder.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    *why = Failed("mount FUSE at " + folder);
    return nullptr;
  }
  return std::unique_ptr<HungDisk>(new HungDisk(folder, std::move(device)));
}

HungDisk::HungDisk(std::string folder, UniqueFd device)
    : folder_(std::move(folder)), device_(std::move(device)), server_([this] { Serve(); }) {}

// Aborts the connection, by which the server's read ends as well.
HungDisk::~HungDisk() {
  DDP_CHECK(umount2(folder_.c_str(), MNT_FORCE | MNT_DETACH) == 0);
  server_.join();
}

void HungDisk::Serve() {
  std::vector<char> bytes(kRequestRoom);
  for (;;) {
    const ssize_t size = read(device_.get(), bytes.data(), bytes.size());
    if (size < 0 && (errno == EINTR || errno == ENOENT)) continue;  // its asker is gone
    if (size < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
    fuse_in_header request{};
    std::memcpy(&request, bytes.data(), sizeof(request));
    if (request.opcode == FUSE_INIT) {
      fuse_init_in asked{};
      std::memcpy(&asked, bytes.data() + sizeof(request), sizeof(asked));
      AnswerInit(device_.get(), request, asked);
    } else if (request.opcode != FUSE_INTERRUPT) {
      ++unanswered_;
    }
  }
}

char StateOf(int pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

}  // namespace ddprun::testing
