// What every function of ddp/c.h shares: errors as codes with a text, numbers as enums.
#ifndef DDPRUN_WORKER_RUNTIME_C_FACE_CONVERT_H_
#define DDPRUN_WORKER_RUNTIME_C_FACE_CONVERT_H_

#include <cxxabi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/c.h"
#include "ddp/checkpoint.h"
#include "ddp/communicator.h"
#include "ddp/dtype.h"

namespace ddp::internal {

// Returns the code, and keeps the words of an error for ddp_error_text().
ddp_code Told(const absl::Status& status);
// The same for the exception that is being handled. Throws nothing.
ddp_code ToldException() noexcept;

// `body` returns an absl::Status. What it throws ends here, but for the end of the thread: a
// program's function may call pthread_exit(), as Python's do where the interpreter ends. glibc's
// unwinding then has no exception object: what the handler binds is null.
template <typename Body>
__attribute__((no_sanitize("null"))) ddp_code Guarded(const Body& body) {
  try {
    return Told(body());
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return ToldException();
  }
}

// InvalidArgument naming the first of them that is null. `call` is the function that asks.
absl::Status CheckPointers(const char* call,
                           std::initializer_list<std::pair<const char*, const void*>> pointers);

// The numbers of C as our values; InvalidArgument for those that are none.
absl::StatusOr<DType> DTypeOf(ddp_dtype dtype);
absl::StatusOr<ReduceOp> ReduceOpOf(ddp_reduce_op op);
// `value` if it is one of an enum that begins at 0. `name` is the option's.
absl::StatusOr<int> ChoiceOf(const char* name, int value, int last);
// `count` tensors for `call`, with names and memory.
absl::StatusOr<std::vector<Tensor>> TensorsOf(const char* call, const ddp_tensor* tensors,
                                              size_t count);
// Above 0, and no more than clocks can count.
absl::StatusOr<std::chrono::milliseconds> TimeoutOf(int64_t timeout_ms);

// Handles that hold nothing but one object of C++ are its address.
inline Communicator* CommunicatorOf(ddp_communicator* handle) {
  return reinterpret_cast<Communicator*>(handle);
}
inline const Communicator* CommunicatorOf(const ddp_communicator* handle) {
  return reinterpret_cast<const Communicator*>(handle);
}

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_C_FACE_CONVERT_H_
