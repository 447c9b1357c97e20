// Where a test holds up or misleads a ddprun. The product's answers (test_gates.cc) are fixed. The
// other answers stand in tests/gates, in an object that ddprun_gated links before the product's.
//
// Both are strong definitions, in one object each: where a link takes both, it fails.
#ifndef DDPRUN_LAUNCHER_TEST_GATES_H_
#define DDPRUN_LAUNCHER_TEST_GATES_H_

#include <string>

namespace ddprun::launcher {

// Work on files of that name is about to begin, on the calling thread: waits as it would for a file
// system that does not answer.
void HoldFileWorkForTest(const std::string& name);

// Whether a worker after the first has to wait before it is spawned; asked again and again.
bool IsSpawnHeldForTest();

// The folder that stands for /sys where CPUs are chosen (--numa_binding).
std::string SysRootForTest();

// Whether the disk of one machine counts as one that a cluster's nodes share.
bool IsAnyDiskSharedForTest();

// What is wrong with this rank of a check: slow_compute, slow_network, die, hang.
bool HasFaultForTest(const char* fault);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_TEST_GATES_H_
