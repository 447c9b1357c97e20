// For code that runs where the C library must not: between clone and exec, and in the guardian.
#ifndef DDPRUN_LAUNCHER_PROCESS_RAW_SYSCALL_H_
#define DDPRUN_LAUNCHER_PROCESS_RAW_SYSCALL_H_

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

// Keeps the sanitizers out of the function: it runs in a process or thread that was made by a raw
// clone, and their run-time does not know of those.
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

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

namespace ddprun::launcher {

// A system call that touches registers only: a child between clone and exec has the agent's memory,
// errno included, while the agent runs on. Returns the result or, in the kernel's own way, -errno.
__attribute__((always_inline)) inline long RawSyscallWords(long number, long a, long b, long c,
                                                           long d, long e) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
  return x0;
#else
#error "system calls are written for x86-64 and arm64"
#endif
}

__attribute__((always_inline)) inline long SyscallWord(long value) { return value; }
__attribute__((always_inline)) inline long SyscallWord(const volatile void* pointer) {
  return reinterpret_cast<long>(pointer);
}

// Up to five arguments, numbers or pointers.
template <typename... Arguments>
__attribute__((always_inline)) inline long RawSyscall(long number, Arguments... arguments) {
  static_assert(sizeof...(Arguments) <= 5);
  const long words[5] = {SyscallWord(arguments)...};
  return RawSyscallWords(number, words[0], words[1], words[2], words[3], words[4]);
}

struct LinuxDirent {  // getdents64's record
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
  char name[1];
};
inline constexpr uint8_t kDirectoryType = 4;  // DT_DIR

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_RAW_SYSCALL_H_
