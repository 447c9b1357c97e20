// The record of what happened, for tests that assert an order: $DDPRUN_DOUBLE_LOG names a file that
// all processes append to, one write a line.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_LOG_H_
#define DDPRUN_TESTS_GPU_DOUBLE_LOG_H_

namespace ddprun::gpu_double {

// Appends "pid=123 us=456 <text>"; us is the steady clock.
__attribute__((format(printf, 1, 2))) void Log(const char* format, ...);

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_LOG_H_
