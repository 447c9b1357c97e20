// Threads that find no memory.
#ifndef DDPRUN_TESTS_SUPPORT_NO_MEMORY_H_
#define DDPRUN_TESTS_SUPPORT_NO_MEMORY_H_

namespace ddprun::testing {

// While it lives, each thread that has allocated nothing before gets std::bad_alloc for all that it
// asks for. One at a time. Programs that link this have an operator new of their own.
class NoMemoryOnNewThreads {
 public:
  NoMemoryOnNewThreads();
  ~NoMemoryOnNewThreads();
  NoMemoryOnNewThreads(const NoMemoryOnNewThreads&) = delete;
  NoMemoryOnNewThreads& operator=(const NoMemoryOnNewThreads&) = delete;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_NO_MEMORY_H_
