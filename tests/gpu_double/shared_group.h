// What the ranks of one communicator share: a file, mapped by each, found by the unique id.
#ifndef DDPRUN_TESTS_GPU_DOUBLE_SHARED_GROUP_H_
#define DDPRUN_TESTS_GPU_DOUBLE_SHARED_GROUP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tests/gpu_double/exports.h"

namespace ddprun::gpu_double {

inline constexpr int kMaxRanks = 64;
inline constexpr size_t kChunkBytes = 256 << 10;
inline constexpr size_t kMailBytes = 64 << 10;

// What one rank says it is about to do; compared by all.
struct Announcement {
  int kind = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  uint64_t count = 0;
  bool is_registered = false;
};

// All of it starts as zeros, so that whoever comes first need not prepare anything.
struct Seat {
  std::atomic<int32_t> pid;  // 0: nobody has joined here
  int world_size;
  std::atomic<uint64_t> steps;
  std::atomic<uint32_t> has_finalized;
  char gpu[128];  // host and bus
  uint64_t key;   // a hash of what it encrypts with; 0: nothing
  // Two of each: while a rank fills one, others may still read the other.
  Announcement announcement[2];
  alignas(64) char chunk[2][kChunkBytes];
};

// From one rank to another: full while written > read.
struct Mail {
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  uint64_t count;  // of the message that the chunk belongs to
  int type;
  alignas(64) char chunk[kMailBytes];
};

// Every change rings a bell that all wait at. A waiter looks again every few milliseconds anyway,
// so a rank that was killed half way leaves nobody blind.
class SharedGroup {
 public:
  using Condition = std::function<bool()>;

  // Null, with the reason, when the file cannot be used.
  static std::shared_ptr<SharedGroup> Open(const NcclUniqueId& id, std::string* error);
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  Seat& seat(int rank);
  Mail& mail(int from, int to);

  void Ring();
  // Waits until `condition`; false as soon as `must_stop`.
  bool WaitFor(const Condition& condition, const Condition& must_stop);
  // Waits until someone rings, a few milliseconds at most.
  void WaitForRing(uint32_t heard);
  uint32_t heard() const;

  // The file's name is no longer needed once all have joined. What an incomplete group leaves
  // behind is one sparse file in $DDPRUN_DOUBLE_DIR.
  void Unlink();

 private:
  struct Layout;
  SharedGroup(std::string path, Layout* layout) : path_(std::move(path)), layout_(layout) {}

  const std::string path_;
  Layout* const layout_;
};

// Fills an id that no other call gives, in any process.
void MakeUniqueId(NcclUniqueId* id);
// Whether the process is gone, or a zombie.
bool IsDead(int pid);

}  // namespace ddprun::gpu_double

#endif  // DDPRUN_TESTS_GPU_DOUBLE_SHARED_GROUP_H_
