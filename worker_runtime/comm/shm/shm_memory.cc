// ShmDomain's memory: creating and mapping it, and the buffers in it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/free_memory.h"
#include "worker_runtime/comm/refused.h"
#include "worker_runtime/comm/shm/shm_domain.h"

namespace ddp::internal {
namespace {

char* MapShared(int fd, size_t bytes, uint64_t offset, int flags) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd,
                       static_cast<off_t>(offset));
  return address == MAP_FAILED ? nullptr : static_cast<char*>(address);
}

}  // namespace

absl::StatusOr<ddprun::UniqueFd> ShmDomain::CreateMemory(int ranks) {
  absl::Status room = CheckFreeMemory(
      FixedBytes(ranks), absl::StrCat("share memory between ", ranks, " ranks of this node"));
  if (!room.ok()) return room;
  ddprun::UniqueFd memory(memfd_create("ddp-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open()) return Refused("memfd_create for the ranks of this node", errno);
  if (ftruncate(memory.get(), static_cast<off_t>(FixedBytes(ranks))) != 0) {
    return Refused(absl::StrCat("size the shared memory to ", FixedBytes(ranks), " bytes"), errno);
  }
  // No rank can take pages from under the others.
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return Refused("seal the shared memory", errno);
  }
  // The zeroed pages are valid headers and lines; only the objects' lifetimes have to begin, and
  // they do so here, before anybody else has the memory.
  char* base = MapShared(memory.get(), ControlBytes(ranks), 0, 0);
  if (base == nullptr) return Refused("map the shared memory", errno);
  new (base) GroupHeader();
  for (int i = 0; i < ranks; ++i) new (LinesOf(base) + i) RankLines();
  munmap(base, ControlBytes(ranks));
  return memory;
}

absl::StatusOr<std::unique_ptr<ShmDomain>> ShmDomain::Map(ddprun::UniqueFd memory,
                                                          std::vector<int> ranks, int index) {
  const size_t bytes = FixedBytes(static_cast<int>(ranks.size()));
  char* base = MapShared(memory.get(), bytes, 0, 0);
  if (base == nullptr) {
    return Refused(absl::StrCat("map ", bytes, " bytes of shared memory"), errno);
  }
  return std::unique_ptr<ShmDomain>(
      new ShmDomain(std::move(memory), base, std::move(ranks), index));
}

// One buffer: the parts of all ranks, mapped here. Destroying it releases this rank's part; the
// others keep theirs.
class ShmDomain::Region final : public Buffer {
 public:
  Region(ShmDomain& domain, int32_t id, char* mapping, size_t stride, uint64_t offset, size_t bytes)
      : domain_(domain),
        id_(id),
        mapping_(mapping),
        stride_(stride),
        offset_(offset),
        bytes_(bytes) {}
  ~Region() override {
    domain_.Release(id_);
    munmap(mapping_, stride_ * static_cast<size_t>(domain_.size()));
    // Gives the pages back. Best effort: at worst they live until the group ends.
    fallocate(domain_.memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset_ + stride_ * static_cast<size_t>(domain_.index())),
              static_cast<off_t>(stride_));
  }
  void* data() const override { return mapping_ + stride_ * static_cast<size_t>(domain_.index()); }
  size_t bytes() const override { return bytes_; }

 private:
  ShmDomain& domain_;
  const int32_t id_;
  char* const mapping_;
  const size_t stride_;
  const uint64_t offset_;
  const size_t bytes_;
};

absl::Status ShmDomain::CheckRoomFor(const Op& op) const {
  const uint64_t total = RoundUpToPage(op.count) * static_cast<uint64_t>(size());
  return CheckFreeMemory(total, absl::StrCat("allocate a buffer of ", op.count,
                                             " bytes on each of ", size(), " ranks of this node"));
}

absl::StatusOr<std::unique_ptr<Buffer>> ShmDomain::Allocate(const Op& op, uint32_t step) {
  const size_t bytes = op.count;
  const size_t stride = std::max(RoundUpToPage(bytes), kPage);
  const uint64_t offset = end_;
  const uint64_t mine = offset + stride * static_cast<uint64_t>(index_);
  // The pages are taken here, by the rank that will fill them: a lack of memory is an error now
  // rather than a SIGBUS later.
  while (fallocate(memory_.get(), 0, static_cast<off_t>(mine), static_cast<off_t>(stride)) != 0) {
    const int error = errno;
    if (error != EINTR) {
      return Refused(absl::StrCat("allocate a buffer of ", bytes, " bytes"), error);
    }
  }
  PostFinished(step);
  absl::Status status = AwaitFinished(step, op);
  if (!status.ok()) return status;
  const size_t total = stride * static_cast<size_t>(size());
  char* mapping = MapShared(memory_.get(), total, offset, MAP_POPULATE);
  if (mapping == nullptr) return Refused(absl::StrCat("map a buffer of ", total, " bytes"), errno);
  end_ = offset + total;
  const int32_t id = ++last_region_;
  {
    std::lock_guard lock(mutex_);
    parts_.push_back({id, mapping, stride});
  }
  return std::unique_ptr<Buffer>(new Region(*this, id, mapping, stride, offset, bytes));
}

void ShmDomain::Release(int32_t id) {
  std::lock_guard lock(mutex_);
  std::erase_if(parts_, [id](const Part& part) { return part.id == id; });
}

Location ShmDomain::Locate(const void* data, size_t bytes) {
  const char* begin = static_cast<const char*>(data);
  std::lock_guard lock(mutex_);
  for (const Part& part : parts_) {
    const char* mine = part.base + part.stride * static_cast<size_t>(index_);
    if (begin >= mine && begin + bytes <= mine + part.stride) {
      return {part.id, static_cast<uint64_t>(begin - mine)};
    }
  }
  return {};
}

char* ShmDomain::Resolve(int index, const Location& location) {
  std::lock_guard lock(mutex_);
  for (const Part& part : parts_) {
    if (part.id == location.region) {
      return part.base + part.stride * static_cast<size_t>(index) + location.offset;
    }
  }
  return nullptr;
}

}  // namespace ddp::internal
