// The same code for processors with AVX2 and F16C. Fused multiply-add stays out: it rounds
// differently.
#if defined(__x86_64__)
#if defined(__clang__)
#include <immintrin.h>
#pragma clang attribute push(__attribute__((target("avx2,f16c,prfchw"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c,prfchw")
#include <immintrin.h>
#endif
#define KERNELS kernels_avx2
#define KERNELS_HAVE_F16C 1
#include "worker_runtime/comm/kernels_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
