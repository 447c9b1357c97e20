#include "tests/support/stop_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/files.h"

namespace ddprun::testing {

std::string MakeStopFile(const std::string& path) { return WriteFile(path, std::string(4096, 0)); }

void RequestStop(const std::string& path) {
  const uint32_t one = 1;
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  DDP_CHECK(file.is_open());
  DDP_CHECK(pwrite(file.get(), &one, sizeof one, 0) == sizeof one);
}

bool HasHeardStop(const std::string& path) {
  const std::string bytes = ReadFile(path);
  DDP_CHECK(bytes.size() == 4096);
  uint32_t heard = 0;
  std::memcpy(&heard, bytes.data() + 4, sizeof heard);
  return heard == 1;
}

ddp::internal::ProgressShare ProgressIn(const std::string& path) {
  const std::string bytes = ReadFile(path);
  DDP_CHECK(bytes.size() == 4096);
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + ddp::internal::kProgressOffset, sizeof word);
  return ddp::internal::UnpackProgress(word);
}

}  // namespace ddprun::testing
