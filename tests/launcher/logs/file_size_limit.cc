#include "tests/launcher/logs/file_size_limit.h"

#include <csignal>

#include "rendezvous/base/check.h"

namespace ddprun::launcher {

FileSizeLimit::FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
  DDP_CHECK(getrlimit(RLIMIT_FSIZE, &before_) == 0);
  Set(bytes);
}

FileSizeLimit::~FileSizeLimit() {
  Set(before_.rlim_cur);
  std::signal(SIGXFSZ, handler_);
}

void FileSizeLimit::Set(rlim_t bytes) {
  const rlimit limit = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
  DDP_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

}  // namespace ddprun::launcher
