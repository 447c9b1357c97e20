// The kernels' element types, and how two elements become one. Part of kernels_impl.h, and under
// its rule: no standard header with inline functions.
#ifndef KERNELS
#error "include from kernels_impl.h only"
#endif

#include <stdint.h>

namespace ddp::internal::KERNELS {
namespace {

// Callers' pointers have no alignment, so every element type is declared without one.
#define DDP_UNALIGNED __attribute__((aligned(1), may_alias))
typedef float Float32 DDP_UNALIGNED;
typedef uint16_t Bits16 DDP_UNALIGNED;
typedef uint32_t Bits32 DDP_UNALIGNED;

// Attributes of a template's argument are dropped, those of a member type are kept.
struct OfFloat32 {
  typedef float Value;
  typedef float Unaligned DDP_UNALIGNED;
};
struct OfFloat64 {
  typedef double Value;
  typedef double Unaligned DDP_UNALIGNED;
};
// Integers wrap, which only unsigned ones may; the bits are the same.
struct OfUint32 {
  typedef uint32_t Value;
  typedef uint32_t Unaligned DDP_UNALIGNED;
};
struct OfUint64 {
  typedef uint64_t Value;
  typedef uint64_t Unaligned DDP_UNALIGNED;
};
struct OfUint8 {
  typedef uint8_t Value;
  typedef uint8_t Unaligned DDP_UNALIGNED;
};
struct OfInt8 {
  typedef int8_t Value;
  typedef int8_t Unaligned DDP_UNALIGNED;
};
// Division and order are signed.
struct OfInt32 {
  typedef int32_t Value;
  typedef int32_t Unaligned DDP_UNALIGNED;
};
struct OfInt64 {
  typedef int64_t Value;
  typedef int64_t Unaligned DDP_UNALIGNED;
};

// What is combined as Int32 and Int64: a sign counts where values are compared.
struct Sum {
  typedef OfUint32 Int32;
  typedef OfUint64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return before + next;
  }
};

// Of two equal values and of two NaNs the earlier rank's; a NaN is above and below all else. The
// bits then depend on no instruction's choice.
struct Max {
  typedef OfInt32 Int32;
  typedef OfInt64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return (before == before) & !(next <= before) ? next : before;
  }
};
struct Min {
  typedef OfInt32 Int32;
  typedef OfInt64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return (before == before) & !(next >= before) ? next : before;
  }
};
struct Product {
  typedef OfUint32 Int32;
  typedef OfUint64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return before * next;
  }
};

struct BitAnd {
  typedef OfUint32 Int32;
  typedef OfUint64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return before & next;
  }
};
struct BitOr {
  typedef OfUint32 Int32;
  typedef OfUint64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return before | next;
  }
};
struct BitXor {
  typedef OfUint32 Int32;
  typedef OfUint64 Int64;
  template <typename Value>
  static Value Of(Value before, Value next) {
    return before ^ next;
  }
};

}  // namespace
}  // namespace ddp::internal::KERNELS
