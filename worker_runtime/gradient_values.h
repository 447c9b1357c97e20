// Norms of gradients, and arithmetic on their values, wherever they are.
#ifndef DDPRUN_WORKER_RUNTIME_GRADIENT_VALUES_H_
#define DDPRUN_WORKER_RUNTIME_GRADIENT_VALUES_H_

#include "ddp/communicator.h"
#include "worker_runtime/comm/gradient_arithmetic.h"

namespace ddp::internal {

bool IsFloat(DType dtype);

// The norm of order `norm_type`, above 0 and perhaps infinite, from what PartOfNorm() says of all
// elements: parts of disjoint elements are added up, or the largest taken where that is infinite.
double NormOf(double part, double norm_type);

// For the memory of `communicator`, and as long as that lives.
GradientArithmetic& ArithmeticFor(Communicator& communicator);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GRADIENT_VALUES_H_
