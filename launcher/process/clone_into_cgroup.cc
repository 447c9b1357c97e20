// clone(2) for a child that is born in another cgroup.
#include <linux/sched.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "launcher/process/job_cgroup.h"
#include "process/raw_syscall.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {
namespace {

// clone3(2), which the C library neither exports nor can be asked for through syscall(): the child
// comes back on an empty stack, where syscall() finds no address to return to. So the child must
// not leave the assembly: it calls `run` and exits with what that returns. The kernel gives it a
// copy of the registers, which is how it knows `run` and `argument`.
//
// Returns the child's pid, or -errno.
long Clone3(const clone_args& arguments, int (*run)(void*), void* argument) {
#if defined(__x86_64__)
  register auto entry __asm__("r8") = run;
  register void* parameter __asm__("r9") = argument;
  long result = 0;
  __asm__ volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"  // where a backtrace ends
      "movq %[parameter], %%rdi\n\t"
      "call *%[entry]\n\t"
      "movl %%eax, %%edi\n\t"
      "movl %[exit], %%eax\n\t"
      "syscall\n\t"
      "hlt\n"
      "1:"
      : "=a"(result)
      : "a"(SYS_clone3), "D"(&arguments),
        "S"(sizeof(arguments)), [entry] "r"(entry), [parameter] "r"(parameter), [exit] "i"(SYS_exit)
      : "rcx", "r11", "cc", "memory");
  return result;
#elif defined(__aarch64__)
  register long result __asm__("x0") = reinterpret_cast<long>(&arguments);
  register long size __asm__("x1") = sizeof(arguments);
  register auto entry __asm__("x2") = run;
  register void* parameter __asm__("x3") = argument;
  register long number __asm__("x8") = SYS_clone3;
  __asm__ volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"  // where a backtrace ends
      "mov x0, %[parameter]\n\t"
      "blr %[entry]\n\t"
      "mov x8, %[exit]\n\t"
      "svc #0\n\t"
      "brk #0\n"
      "1:"
      : "+r"(result)
      : "r"(size), [entry] "r"(entry), [parameter] "r"(parameter), "r"(number), [exit] "i"(SYS_exit)
      : "cc", "memory");
  return result;
#else
  static_cast<void>(arguments), static_cast<void>(run), static_cast<void>(argument);
  return -ENOSYS;
#endif
}

}  // namespace

pid_t CloneIntoCgroup(int directory, int (*run)(void*), void* stack, size_t stack_bytes,
                      void* argument) {
  DDP_CHECK(reinterpret_cast<uintptr_t>(stack) % 16 == 0 && stack_bytes % 16 == 0);
  clone_args arguments{};
  arguments.flags = CLONE_VM | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.stack = reinterpret_cast<uint64_t>(stack);
  arguments.stack_size = stack_bytes;
  arguments.cgroup = static_cast<uint64_t>(directory);
  const long result = Clone3(arguments, run, argument);
  if (result >= 0) return static_cast<pid_t>(result);
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace ddprun::launcher
