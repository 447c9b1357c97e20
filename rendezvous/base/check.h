// DDP_CHECK: what only a bug of ours can break. On in every build; ends the process by abort().
#ifndef DDPRUN_RENDEZVOUS_BASE_CHECK_H_
#define DDPRUN_RENDEZVOUS_BASE_CHECK_H_

namespace ddprun {

// Writes "CHECK failed: <condition> at <file>:<line>" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace ddprun

#define DDP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::ddprun::CheckFailed(#condition, __FILE__, __LINE__))

#endif  // DDPRUN_RENDEZVOUS_BASE_CHECK_H_
