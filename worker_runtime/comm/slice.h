// Ranges of elements: divided among those who work on them, addressed, copied.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SLICE_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SLICE_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace ddp::internal {

struct Slice {
  size_t begin = 0;  // elements
  size_t count = 0;
};

// Part `index` of `parts` of `count` elements of `size` bytes: equal parts of whole cache lines, so
// that no two write to one; the last ones may be smaller or empty.
inline Slice SliceOf(size_t count, size_t size, int parts, int index) {
  const size_t line = std::max<size_t>(1, 64 / size);
  const size_t n = static_cast<size_t>(parts);
  const size_t each = ((count + n - 1) / n + line - 1) / line * line;
  const size_t begin = std::min(count, each * static_cast<size_t>(index));
  return {begin, std::min(each, count - begin)};
}

// Element `elements` of an array of elements of `size` bytes; null where there is no array.
inline const char* At(const void* data, size_t elements, size_t size) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + elements * size;
}
inline char* At(void* data, size_t elements, size_t size) {
  return data == nullptr ? nullptr : static_cast<char*>(data) + elements * size;
}

// Null is allowed where there is nothing to copy.
inline void Copy(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SLICE_H_
