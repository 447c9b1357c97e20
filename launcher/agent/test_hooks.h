// What tests change from outside, through variables that are for nobody else.
#ifndef DDPRUN_LAUNCHER_AGENT_TEST_HOOKS_H_
#define DDPRUN_LAUNCHER_AGENT_TEST_HOOKS_H_

#include <string>

#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// DDPRUN_TEST_SPAWN_DELAY_MS: lets a test send a signal between two spawns.
Duration SpawnDelayForTest();

// DDPRUN_TEST_FILE_GATE, "NAME:FIFO": work on files of that name first waits until somebody opens
// the FIFO for writing, as it would for a file system that does not answer. Called on the thread
// that does the work.
void HoldFileWorkForTest(const std::string& name);

// DDPRUN_TEST_SYSFS: a folder that stands for /sys where CPUs are chosen (--numa_binding).
std::string SysRootForTest();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_TEST_HOOKS_H_
