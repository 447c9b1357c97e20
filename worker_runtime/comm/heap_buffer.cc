#include "worker_runtime/comm/heap_buffer.h"

#include <sys/mman.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/free_memory.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {
namespace {

class HeapBuffer final : public Buffer {
 public:
  HeapBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~HeapBuffer() override { munmap(data_, bytes_ + 1); }
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* const data_;
  const size_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> AllocateHeapBuffer(size_t bytes) {
  absl::Status room =
      CheckFreeMemory(bytes, absl::StrCat("allocate a buffer of ", bytes, " bytes"));
  if (!room.ok()) return room;
  // One byte more, since a mapping of nothing is an error.
  void* data = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Refused(absl::StrCat("allocate a buffer of ", bytes, " bytes"), errno);
  }
  return std::unique_ptr<Buffer>(new HeapBuffer(data, bytes));
}

}  // namespace ddp::internal
