#define KERNELS kernels_portable
#define KERNELS_HAVE_F16C 0
#include "worker_runtime/comm/kernels_impl.h"
