#include "worker_runtime/c_face/convert.h"

#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/version.h"

namespace ddp::internal {
namespace {

// 31 years; deadlines are counted in nanoseconds, of which 64 bits hold 292 years.
constexpr int64_t kLongestTimeoutMs = 1'000'000'000'000;

static_assert(static_cast<int>(DType::kFloat32) == DDP_FLOAT32);
static_assert(static_cast<int>(DType::kFloat64) == DDP_FLOAT64);
static_assert(static_cast<int>(DType::kFloat16) == DDP_FLOAT16);
static_assert(static_cast<int>(DType::kBFloat16) == DDP_BFLOAT16);
static_assert(static_cast<int>(DType::kInt32) == DDP_INT32);
static_assert(static_cast<int>(DType::kInt64) == DDP_INT64);
static_assert(static_cast<int>(DType::kUint8) == DDP_UINT8);
static_assert(static_cast<int>(DType::kInt8) == DDP_INT8);
static_assert(static_cast<int>(ReduceOp::kSum) == DDP_SUM);
static_assert(static_cast<int>(ReduceOp::kAverage) == DDP_AVERAGE);
static_assert(static_cast<int>(ReduceOp::kMax) == DDP_MAX);
static_assert(static_cast<int>(ReduceOp::kMin) == DDP_MIN);
static_assert(static_cast<int>(ReduceOp::kProduct) == DDP_PRODUCT);
static_assert(static_cast<int>(ReduceOp::kBitAnd) == DDP_BIT_AND);
static_assert(static_cast<int>(ReduceOp::kBitOr) == DDP_BIT_OR);
static_assert(static_cast<int>(ReduceOp::kBitXor) == DDP_BIT_XOR);
static_assert(static_cast<int>(absl::StatusCode::kInvalidArgument) == DDP_INVALID_ARGUMENT);
static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) == DDP_UNAUTHENTICATED);

struct LastError {
  std::string words;
  const char* text = "";  // `words`, or what needs no memory
};

LastError& LastErrorOfThread() {
  static thread_local LastError error;
  return error;
}

}  // namespace

ddp_code Told(const absl::Status& status) {
  if (status.ok()) return DDP_OK;
  LastError& error = LastErrorOfThread();
  error.words.assign(status.message().data(), status.message().size());
  error.text = error.words.c_str();
  return static_cast<ddp_code>(status.code());
}

ddp_code ToldException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    LastErrorOfThread().text = "there is no memory left";
    return DDP_RESOURCE_EXHAUSTED;
  } catch (const std::exception& exception) {
    try {
      return Told(absl::InternalError(absl::StrCat("an exception: ", exception.what())));
    } catch (...) {
      LastErrorOfThread().text = "an exception, and no memory left to describe it";
      return DDP_INTERNAL;
    }
  } catch (...) {
    LastErrorOfThread().text = "an exception of an unknown type";
    return DDP_INTERNAL;
  }
}

absl::Status CheckPointers(const char* call,
                           std::initializer_list<std::pair<const char*, const void*>> pointers) {
  for (const auto& [name, pointer] : pointers) {
    if (pointer != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(call, ": `", name, "` is a null pointer"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> ChoiceOf(const char* name, int value, int last) {
  if (value >= 0 && value <= last) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` is ", value, ": ddp/c.h has values from 0 to ", last));
}

absl::StatusOr<DType> DTypeOf(ddp_dtype dtype) {
  const auto known = ChoiceOf("dtype", dtype, DDP_INT8);
  if (!known.ok()) return known.status();
  return static_cast<DType>(*known);
}

absl::StatusOr<ReduceOp> ReduceOpOf(ddp_reduce_op op) {
  const auto known = ChoiceOf("op", op, DDP_BIT_XOR);
  if (!known.ok()) return known.status();
  return static_cast<ReduceOp>(*known);
}

absl::StatusOr<std::vector<Tensor>> TensorsOf(const char* call, const ddp_tensor* tensors,
                                              size_t count) {
  std::vector<Tensor> result;
  if (count == 0) return result;
  absl::Status status = CheckPointers(call, {{"tensors", tensors}});
  if (!status.ok()) return status;
  for (size_t i = 0; i < count; ++i) {
    status = CheckPointers(call, {{"name of a tensor", tensors[i].name}});
    if (status.ok() && tensors[i].count > 0) {
      status = CheckPointers(call, {{tensors[i].name, tensors[i].data}});
    }
    if (!status.ok()) return status;
    const auto dtype = DTypeOf(tensors[i].dtype);
    if (!dtype.ok()) return dtype.status();
    result.push_back({.name = tensors[i].name,
                      .data = tensors[i].data,
                      .count = tensors[i].count,
                      .dtype = *dtype});
  }
  return result;
}

absl::StatusOr<std::chrono::milliseconds> TimeoutOf(int64_t timeout_ms) {
  if (timeout_ms > 0 && timeout_ms <= kLongestTimeoutMs) {
    return std::chrono::milliseconds(timeout_ms);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a timeout of ", timeout_ms, " ms: it must be above 0, and at most ", kLongestTimeoutMs));
}

}  // namespace ddp::internal

const char* ddp_version(void) { return ddprun::kVersion; }

const char* ddp_error_text(void) { return ddp::internal::LastErrorOfThread().text; }

const char* ddp_code_name(ddp_code code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= DDP_OK && code <= DDP_UNAUTHENTICATED ? kNames[code] : "";
}
