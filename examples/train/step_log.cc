#include "examples/train/step_log.h"

#include <cerrno>
#include <cmath>
#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace train {
namespace {

absl::Status Failed(const char* call, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat(call, " \"", path, "\""));
}

absl::StatusOr<std::FILE*> Open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file != nullptr) return file;
  return Failed("open", path);
}

}  // namespace

absl::Status CheckStepLog(const std::string& path) {
  const absl::StatusOr<std::FILE*> file = Open(path);
  if (file.ok()) std::fclose(*file);
  return file.status();
}

absl::Status AddToStepLog(const std::string& path, int64_t step, double loss) {
  const absl::StatusOr<std::FILE*> file = Open(path);
  if (!file.ok()) return file.status();
  const std::string number = std::isfinite(loss) ? absl::StrFormat("%.17g", loss) : "null";
  std::fprintf(*file, "{\"step\": %lld, \"loss\": %s}\n", static_cast<long long>(step),
               number.c_str());
  // What does not fit is told here: a line is shorter than the buffer.
  return std::fclose(*file) == 0 ? absl::OkStatus() : Failed("write", path);
}

}  // namespace train
