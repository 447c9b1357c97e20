#include "worker_runtime/c_face/answer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/c_face/convert.h"

struct ddp_answer {
  std::string value;
  std::string error;
};

void ddp_answer_value(ddp_answer* answer, const void* value, size_t size) {
  if (answer == nullptr) return;
  answer->value.assign(value == nullptr ? "" : static_cast<const char*>(value),
                       value == nullptr ? 0 : size);
}

void ddp_answer_error(ddp_answer* answer, const char* text) {
  if (answer != nullptr) answer->error = text == nullptr ? "" : text;
}

namespace ddp::internal {

absl::StatusOr<std::string> Answered(const std::string& call,
                                     const std::function<ddp_code(ddp_answer*)>& function) {
  ddp_answer answer;
  ddp_code code;
  try {
    code = function(&answer);
  } catch (...) {
    code = ToldException();
    answer.error = ddp_error_text();
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
