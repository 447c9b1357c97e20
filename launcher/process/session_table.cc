#include "launcher/process/session_table.h"

#include <algorithm>
#include <cerrno>

#include "process/raw_syscall.h"

namespace ddprun::launcher {
namespace {

// The builtins and not std::atomic: its members are functions, which a sanitizer instruments for
// the guardian too.
DDPRUN_RAW pid_t Load(const pid_t& slot) { return __atomic_load_n(&slot, __ATOMIC_RELAXED); }
DDPRUN_RAW void Store(pid_t& slot, pid_t session) {
  __atomic_store_n(&slot, session, __ATOMIC_RELAXED);
}

}  // namespace

void SessionTable::Add(pid_t session) {
  for (Slot& slot : slots_) {
    if (Load(slot.session) == 0) return Store(slot.session, session);
  }
}

void SessionTable::Remove(pid_t session) {
  for (Slot& slot : slots_) {
    if (Load(slot.session) == session) Store(slot.session, 0);
  }
}

bool SessionTable::is_empty() const {
  return std::ranges::all_of(slots_, [](const Slot& slot) { return Load(slot.session) == 0; });
}

DDPRUN_RAW bool SessionTable::Meet(pid_t session) {
  // Session 0 is the kernel's own threads, and whoever came into this pid namespace from outside.
  if (session == 0) return false;
  for (Slot& slot : slots_) {
    if (Load(slot.session) != session) continue;
    slot.is_met = true;
    return true;
  }
  return false;
}

DDPRUN_RAW void SessionTable::RemoveEnded() {
  for (Slot& slot : slots_) {
    const pid_t session = Load(slot.session);
    const bool was_met = slot.is_met;
    slot.is_met = false;
    if (session == 0 || was_met) continue;
    if (syscall(SYS_kill, -session, 0) != 0 && errno == ESRCH) Store(slot.session, 0);
  }
}

}  // namespace ddprun::launcher
