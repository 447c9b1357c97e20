// System calls for code that runs where the C library must not: between clone and exec, and in the
// guardian.
#ifndef DDPRUN_PROCESS_RAW_SYSCALL_H_
#define DDPRUN_PROCESS_RAW_SYSCALL_H_

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

// Keeps the sanitizers out of the function: it runs in a process or thread that was made by a raw
// clone, and their run-time does not know of those.
#define DDPRUN_RAW \
  __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

namespace ddprun {

// A system call that touches registers only: a child between clone and exec has its parent's
// memory, errno included, while the parent may run on. Returns the result or, in the kernel's own
// way, -errno.
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

// The names in an open directory, from where it stands.
class RawEntries {
 public:
  DDPRUN_RAW explicit RawEntries(int directory) : directory_(directory) {}

  // Null at the end, or where the directory cannot be read on. Valid until the next call.
  DDPRUN_RAW const char* Next() {
    if (at_ >= size_) {
      at_ = 0;
      size_ = syscall(SYS_getdents64, directory_, entries_, sizeof(entries_));
      if (size_ <= 0) return nullptr;
    }
    const dirent64* entry = reinterpret_cast<const dirent64*>(entries_ + at_);
    at_ += entry->d_reclen;
    return entry->d_name;
  }
  DDPRUN_RAW bool has_failed() const { return size_ < 0; }

 private:
  const int directory_;
  long at_ = 0;
  long size_ = 0;
  alignas(dirent64) char entries_[4096];
};

}  // namespace ddprun

#endif  // DDPRUN_PROCESS_RAW_SYSCALL_H_
