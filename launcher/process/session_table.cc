#include "launcher/process/session_table.h"

#include <sys/mman.h>

#include <cerrno>
#include <csignal>

#include "launcher/process/raw_syscall.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

// The builtins and not std::atomic: its members are functions, which a sanitizer instruments for
// the guardian too.
DDPRUN_RAW pid_t Load(const pid_t& slot) { return __atomic_load_n(&slot, __ATOMIC_RELAXED); }
DDPRUN_RAW void Store(pid_t& slot, pid_t session) {
  __atomic_store_n(&slot, session, __ATOMIC_RELAXED);
}

}  // namespace

void SessionTable::Unmap::operator()(SessionTable* table) const {
  DDP_CHECK(munmap(table, sizeof(*table)) == 0);
}

SessionTable::Pointer SessionTable::Map() {
  void* memory = mmap(nullptr, sizeof(SessionTable), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  // Fresh pages are zero, which is an empty table.
  return Pointer(memory == MAP_FAILED ? nullptr : static_cast<SessionTable*>(memory));
}

void SessionTable::Add(pid_t session) {
  for (pid_t& slot : slots_) {
    if (Load(slot) == 0) return Store(slot, session);
  }
}

void SessionTable::Remove(pid_t session) {
  for (pid_t& slot : slots_) {
    if (Load(slot) == session) Store(slot, 0);
  }
}

DDPRUN_RAW void SessionTable::RemoveEnded() {
  for (pid_t& slot : slots_) {
    const pid_t session = Load(slot);
    if (session != 0 && syscall(SYS_kill, -session, 0) != 0 && errno == ESRCH) Store(slot, 0);
  }
}

DDPRUN_RAW bool SessionTable::Holds(pid_t session) const {
  // Session 0 is the kernel's own threads, and whoever came into this pid namespace from outside.
  if (session == 0) return false;
  for (const pid_t& slot : slots_) {
    if (Load(slot) == session) return true;
  }
  return false;
}

}  // namespace ddprun::launcher
