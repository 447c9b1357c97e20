#include "tests/gpu_double/shared_group.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/gpu_double/settings.h"

namespace ddprun::gpu_double {
namespace {

constexpr char kMagic[] = "ddprun-gpu-double";
constexpr long kLookAgainNs = 5'000'000;

std::string Directory() {
  return TextSetting("DDPRUN_DOUBLE_DIR", TextSetting("TMPDIR", "/dev/shm"));
}

}  // namespace

struct SharedGroup::Layout {
  std::atomic<uint32_t> bell;
  Seat seats[kMaxRanks];
  Mail mails[kMaxRanks][kMaxRanks];
};

std::shared_ptr<SharedGroup> SharedGroup::Open(const NcclUniqueId& id, std::string* error) {
  if (std::memcmp(id.bytes, kMagic, sizeof kMagic) != 0) {
    *error = "the unique id was not made by ncclGetUniqueId";
    return nullptr;
  }
  const std::string path = Directory() + "/" + kMagic + "-" + (id.bytes + sizeof kMagic);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const bool is_sized = fd >= 0 && ftruncate(fd, sizeof(Layout)) == 0;
  void* memory = is_sized ? mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                          : MAP_FAILED;
  if (memory == MAP_FAILED) *error = path + ": " + std::strerror(errno);
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedGroup>(new SharedGroup(path, static_cast<Layout*>(memory)));
}

SharedGroup::~SharedGroup() {
  Unlink();
  munmap(static_cast<void*>(layout_), sizeof(Layout));
}

Seat& SharedGroup::seat(int rank) { return layout_->seats[rank]; }

Mail& SharedGroup::mail(int from, int to) { return layout_->mails[from][to]; }

uint32_t SharedGroup::heard() const { return layout_->bell.load(); }

void SharedGroup::Ring() {
  layout_->bell.fetch_add(1);
  syscall(SYS_futex, &layout_->bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedGroup::WaitForRing(uint32_t heard) {
  const timespec timeout = {.tv_sec = 0, .tv_nsec = kLookAgainNs};
  syscall(SYS_futex, &layout_->bell, FUTEX_WAIT, heard, &timeout, nullptr, 0);
}

bool SharedGroup::WaitFor(const Condition& condition, const Condition& must_stop) {
  while (true) {
    const uint32_t before = heard();
    if (must_stop()) return false;
    if (condition()) return true;
    WaitForRing(before);
  }
}

void SharedGroup::Unlink() { unlink(path_.c_str()); }

void MakeUniqueId(NcclUniqueId* id) {
  std::memset(id->bytes, 0, sizeof id->bytes);
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) std::abort();
  std::memcpy(id->bytes, kMagic, sizeof kMagic);
  char* text = id->bytes + sizeof kMagic;
  for (const unsigned char byte : random) text += std::sprintf(text, "%02x", byte);
}

bool IsDead(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  // "pid (name) state ...": the name may hold anything.
  const size_t name_end = text.str().rfind(')');
  return name_end != std::string::npos && text.str().compare(name_end, 3, ") Z") == 0;
}

}  // namespace ddprun::gpu_double
