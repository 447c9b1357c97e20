// Checks of a rank's process, where a failed check of doctest would be nobody's.
#ifndef DDPRUN_TESTS_SUPPORT_EXPECT_H_
#define DDPRUN_TESTS_SUPPORT_EXPECT_H_

#include <cstdio>

// Unless it is so, says it on stderr and returns 1, the process's exit code.
#define EXPECT(claim)                                                          \
  do {                                                                         \
    if (!(claim)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
      return 1;                                                                \
    }                                                                          \
  } while (false)

#endif  // DDPRUN_TESTS_SUPPORT_EXPECT_H_
