// Who holds a descriptor of a process, as one does that waits for its end.
#ifndef DDPRUN_TESTS_SUPPORT_PIDFDS_H_
#define DDPRUN_TESTS_SUPPORT_PIDFDS_H_

#include <sys/types.h>

#include <optional>

namespace ddprun::testing {

// How many descriptors of `process` the process `holder` has by now; nullopt: that has ended.
std::optional<int> Pidfds(pid_t holder, pid_t process);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_PIDFDS_H_
