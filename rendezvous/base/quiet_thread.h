// A thread that no signal is delivered to: they are for the thread that waits for them.
#ifndef DDPRUN_RENDEZVOUS_BASE_QUIET_THREAD_H_
#define DDPRUN_RENDEZVOUS_BASE_QUIET_THREAD_H_

#include <functional>
#include <thread>

namespace ddprun {

// Starts `body` with every signal blocked, from its first instruction on; a write into a broken
// pipe is an error there. Not joinable: the system has no thread left, for which kNoThreadText is
// the reason to give, or no memory for one.
std::thread StartQuietThread(std::function<void()> body);

inline constexpr char kNoThreadText[] = "a limit on processes is reached (ulimit -u, pids.max)";

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_QUIET_THREAD_H_
