// For code that runs where the C library must not: between clone and exec, and in the guardian.
#ifndef DDPRUN_LAUNCHER_PROCESS_RAW_SYSCALL_H_
#define DDPRUN_LAUNCHER_PROCESS_RAW_SYSCALL_H_

#include <sys/syscall.h>
#include <unistd.h>

// The function is not instrumented: its thread or process is none the sanitizer knows.
#define DDPRUN_RAW \
  __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

// Numbers that Debian 12's headers have and older kernels answer with ENOSYS.
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#endif  // DDPRUN_LAUNCHER_PROCESS_RAW_SYSCALL_H_
