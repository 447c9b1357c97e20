// What a file finds must not depend on the files before it.
#ifndef DDPRUN_TESTS_SUPPORT_RUNNER_FIXTURE_UNTOUCHED_H_
#define DDPRUN_TESTS_SUPPORT_RUNNER_FIXTURE_UNTOUCHED_H_

// Checks that the process is as the runner promises, then changes all of it.
void CheckAndChangeProcess();

#endif  // DDPRUN_TESTS_SUPPORT_RUNNER_FIXTURE_UNTOUCHED_H_
