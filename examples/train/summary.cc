#include "examples/train/summary.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace train {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Where the summary is written before it gets its name; `path` itself where a rename would replace
// a device, a pipe or a link by a file.
std::string TemporaryOf(const std::string& path) {
  struct stat info;
  const bool is_special = lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  return is_special ? path : path + ".tmp";
}

absl::Status CannotWrite(const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("write \"", path, "\""));
}

// JSON has no other word for what is no number.
std::string NumberOrNull(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

// Negative: not known.
std::string OrNull(double value) { return value < 0 ? "null" : absl::StrFormat("%.6g", value); }

}  // namespace

std::string ToJson(const Summary& summary) {
  std::string epochs;
  for (const EpochResult& result : summary.epochs) {
    absl::StrAppendFormat(&epochs, "%s\n    {\"epoch\": %d, \"loss\": %s, \"accuracy\": %.17g}",
                          epochs.empty() ? "" : ",", result.epoch, NumberOrNull(result.loss),
                          result.accuracy);
  }
  return absl::StrFormat(
      "{\n  \"world_size\": %d,\n  \"backend\": %s,\n  \"epochs\": [%s],\n  \"steps\": %d,\n"
      "  \"start_step\": %d,\n  \"restart_count\": %d,\n  \"samples_per_second\": %.6g,\n"
      "  \"step_ms\": %.6g,\n  \"exposed_communication_share\": %s,\n"
      "  \"cpu_utilisation\": %.6g,\n  \"gpu_utilisation\": %s,\n  \"slow_ranks\": [%s],\n  "
      "\"checkpoint\": %s,\n"
      "  \"parameters_checksum\": %s,\n  \"record\": %s}\n",
      summary.world_size, Quoted(summary.backend), epochs, summary.steps, summary.start_step,
      summary.restart_count, summary.samples_per_second, summary.step_ms,
      OrNull(summary.exposed_communication_share), summary.cpu_utilisation,
      OrNull(summary.gpu_utilisation), absl::StrJoin(summary.slow_ranks, ", "),
      Quoted(summary.checkpoint), Quoted(summary.parameters_checksum), ddp::ToJson(summary.record));
}

absl::Status WriteSummary(const Summary& summary, const std::string& path) {
  const std::string json = ToJson(summary), temporary = TemporaryOf(path);
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  bool is_written = file != nullptr;
  if (is_written) {
    is_written = std::fwrite(json.data(), 1, json.size(), file) == json.size();
    is_written = std::fclose(file) == 0 && is_written;
  }
  if (is_written && temporary == path) return absl::OkStatus();
  if (is_written && std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status status = CannotWrite(path);
  if (file != nullptr && temporary != path) std::remove(temporary.c_str());
  return status;
}

absl::Status CheckSummaryFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return CannotWrite(path);
  }
  const std::string temporary = TemporaryOf(path);
  if (temporary == path) return absl::OkStatus();  // a pipe is opened once: for the summary
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr) return CannotWrite(path);
  std::fclose(file);
  std::remove(temporary.c_str());
  return absl::OkStatus();
}

std::string EncodeEpochs(const std::vector<EpochResult>& epochs) {
  std::string text;
  for (const EpochResult& result : epochs) {
    absl::StrAppendFormat(&text, "%d %.17g %.17g\n", result.epoch, result.loss, result.accuracy);
  }
  return text;
}

std::vector<EpochResult> DecodeEpochs(const std::string& text) {
  std::vector<EpochResult> epochs;
  std::istringstream lines(text);
  EpochResult result;
  std::string loss;  // a stream reads no nan
  while (lines >> result.epoch >> loss >> result.accuracy) {
    result.loss = std::strtod(loss.c_str(), nullptr);
    epochs.push_back(result);
  }
  return epochs;
}

}  // namespace train
