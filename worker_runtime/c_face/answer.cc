#include "worker_runtime/c_face/answer.h"

#include <cxxabi.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/c_face/convert.h"

struct ddp_answer {
  std::string value;
  std::string error;
  ddp_code failure = DDP_OK;  // of taking either
};

namespace {

// A size that is none, or no memory left: no exception goes through a program in C.
void Take(ddp_answer* answer, std::string ddp_answer::*part, const char* data, size_t size) {
  if (answer == nullptr) return;
  try {
    (answer->*part).assign(data == nullptr ? "" : data, data == nullptr ? 0 : size);
  } catch (...) {
    answer->failure = ddp::internal::ToldException();
  }
}

}  // namespace

void ddp_answer_value(ddp_answer* answer, const void* value, size_t size) {
  Take(answer, &ddp_answer::value, static_cast<const char*>(value), size);
}

void ddp_answer_error(ddp_answer* answer, const char* text) {
  Take(answer, &ddp_answer::error, text, text == nullptr ? 0 : std::strlen(text));
}

namespace ddp::internal {

// glibc's unwinding has no exception object: what the handler binds is null.
__attribute__((no_sanitize("null"))) absl::StatusOr<std::string> Answered(
    const std::string& call, const std::function<ddp_code(ddp_answer*)>& function) {
  ddp_answer answer;
  ddp_code code;
  try {
    code = function(&answer);
  } catch (abi::__forced_unwind&) {
    throw;  // the function has called pthread_exit()
  } catch (...) {
    code = ToldException();
    answer.error = ddp_error_text();
  }
  if (answer.failure != DDP_OK) {
    code = answer.failure;
    answer.error = absl::StrCat("its answer could not be taken: ", ddp_error_text());
  }
  if (code == DDP_OK) return std::move(answer.value);
  const bool is_known = code > DDP_OK && code <= DDP_UNAUTHENTICATED;
  return absl::Status(is_known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      absl::StrCat(call, ": ",
                                   !answer.error.empty() ? answer.error
                                   : is_known            ? ddp_code_name(code)
                                                         : absl::StrCat("code ", code)));
}

}  // namespace ddp::internal
