// The gates of tests: variables that ddprun_gated reads and the product does not know.
//
// A test prefers a real means: an option, a FIFO, a namespace, a cgroup, a unit test with the value
// as an argument. These use a gate (tools/lint_checks/gates.py compares):
//
//   kFileGate    tests/e2e/descriptors_test.cc tests/e2e/hung_files_test.cc
//   kSpawnGate   tests/e2e/cgroup_test.cc tests/e2e/one_node_test.cc tests/e2e/signals_test.cc
//   kSpawnGate   tests/e2e/oom_test.cc
//   kSysRoot     tests/e2e/placement_test.cc
//   kSharedDisk  tests/e2e/token_test.cc tests/slurm/slurm_test.cc
//   kCheckFault  tests/e2e/check_test.cc
#ifndef DDPRUN_TESTS_GATES_GATES_H_
#define DDPRUN_TESTS_GATES_GATES_H_

namespace ddprun::testing {

// Among the runfiles: the product's objects, before them one that asks these variables.
inline constexpr char kGatedDdprun[] = "tests/gates/ddprun_gated";

// "NAME:FIFO": work on files of that name first waits until somebody opens the FIFO for writing.
inline constexpr char kFileGate[] = "DDPRUN_TEST_FILE_GATE";

// A path: no worker after the first is spawned before there is a file.
inline constexpr char kSpawnGate[] = "DDPRUN_TEST_SPAWN_GATE";

// A folder that stands for /sys where CPUs are chosen.
inline constexpr char kSysRoot[] = "DDPRUN_TEST_SYSFS";

// Set: the disk of one machine counts as one that a cluster's nodes share.
inline constexpr char kSharedDisk[] = "DDPRUN_TEST_SHARED_DISK";

// What is wrong with this rank of a check: slow_compute, slow_network, die, hang.
inline constexpr char kCheckFault[] = "DDPRUN_TEST_CHECK_FAULT";

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_GATES_GATES_H_
