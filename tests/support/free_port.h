// Ports for programs that must be told one before they listen.
#ifndef DDPRUN_TESTS_SUPPORT_FREE_PORT_H_
#define DDPRUN_TESTS_SUPPORT_FREE_PORT_H_

namespace ddprun::testing {

// A port that was free a moment ago. Below the ephemeral range, so that no socket of another test
// is given it by the kernel; spread by pid, so that two tests hardly ever ask for the same. Each
// only once: two jobs may run side by side before either has bound its own.
int FreePort();

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_FREE_PORT_H_
