// Collects the first thing wrong in a message while its fields are read.
#ifndef DDPRUN_RENDEZVOUS_WIRE_CHECKED_FIELDS_H_
#define DDPRUN_RENDEZVOUS_WIRE_CHECKED_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {

// More ranks, nodes or restarts than any job has; keeps every sum within an int.
inline constexpr int kMaxRank = 1 << 24;
inline constexpr size_t kMaxCleanTextBytes = 4 * 1024;

// Fit for a line on a terminal (EscapeControl). Cut to kMaxCleanTextBytes between characters.
std::string CleanText(const std::string& text);

class CheckedFields {
 public:
  // Each returns the value, or a harmless one after noting what is wrong.
  template <typename Number>
  int64_t Range(const char* field, Number value, int64_t low, int64_t high) {
    const bool is_low = value < 0
                            ? static_cast<int64_t>(value) < low
                            : low > 0 && static_cast<uint64_t>(value) < static_cast<uint64_t>(low);
    const bool is_high = value > 0 && static_cast<uint64_t>(value) > static_cast<uint64_t>(high);
    if (!is_low && !is_high) return static_cast<int64_t>(value);
    Fail(field, absl::StrCat(value, ", accepted: ", low, " to ", high));
    return low;
  }
  std::string Text(const char* field, const std::string& text, size_t min_bytes, size_t max_bytes) {
    if (text.size() < min_bytes) Fail(field, "empty");
    Size(field, text.size(), max_bytes);
    return CleanText(text);
  }
  void Size(const char* field, size_t size, size_t max) {
    if (size > max) Fail(field, absl::StrCat("size ", size, ", at most ", max));
  }
  void Fail(const char* field, const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CHECKED_FIELDS_H_
