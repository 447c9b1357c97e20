// A full disk, in small: files of this process may not grow beyond a limit.
#ifndef DDPRUN_TESTS_LAUNCHER_LOGS_FILE_SIZE_LIMIT_H_
#define DDPRUN_TESTS_LAUNCHER_LOGS_FILE_SIZE_LIMIT_H_

#include <sys/resource.h>

namespace ddprun::launcher {

// While this lives, a write beyond fails with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes);
  ~FileSizeLimit();
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  void Set(rlim_t bytes);

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_LOGS_FILE_SIZE_LIMIT_H_
