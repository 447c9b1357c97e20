// Whether a type that we declared can stand for the library's own in a call.
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_GPU_ABI_ALIKE_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_GPU_ABI_ALIKE_H_

#include <type_traits>

namespace ddp::internal {

template <typename T>
concept Complete = requires {
  sizeof(T);
};

// True for a struct of ours that is the beginning of the library's; a test of its own compares the
// members.
template <typename Ours, typename Theirs>
inline constexpr bool kIsPrefix = false;

// By value, or behind a pointer: the same type; an enum and an integer of its size; two structs of
// one size; two structs that neither side knows the inside of; pointers to such.
template <typename Ours, typename Theirs>
constexpr bool Alike() {
  if constexpr (std::is_same_v<Ours, Theirs>) {
    return true;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using Our = std::remove_pointer_t<Ours>;
    using Their = std::remove_pointer_t<Theirs>;
    return std::is_const_v<Our> == std::is_const_v<Their> &&
           Alike<std::remove_cv_t<Our>, std::remove_cv_t<Their>>();
  } else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    if constexpr (kIsPrefix<Ours, Theirs>) {
      return true;
    } else if constexpr (Complete<Ours> && Complete<Theirs>) {
      return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
             std::is_trivially_copyable_v<Ours> && std::is_trivially_copyable_v<Theirs>;
    } else {
      return !Complete<Ours> && !Complete<Theirs>;
    }
  } else if constexpr (std::is_integral_v<Ours> && std::is_enum_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs);
  } else {
    return false;
  }
}

template <typename Ours, typename Theirs>
struct CallAlike : std::false_type {};

template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct CallAlike<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<Alike<OurResult, TheirResult>() && (Alike<Ours, Theirs>() && ...)> {
};

}  // namespace ddp::internal

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_GPU_ABI_ALIKE_H_
