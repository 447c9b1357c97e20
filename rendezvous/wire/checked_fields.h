// Collects the first thing wrong in a message while its fields are read.
#ifndef DDPRUN_RENDEZVOUS_WIRE_CHECKED_FIELDS_H_
#define DDPRUN_RENDEZVOUS_WIRE_CHECKED_FIELDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {

// More ranks, nodes or restarts than any job has; keeps every sum within an int.
inline constexpr int kMaxRank = 1 << 24;
inline constexpr size_t kMaxTextBytes = 4 * 1024;  // of reasons and messages: cut when sent

// Fit for a line on a terminal (EscapeControl). Cut to kMaxTextBytes between characters.
inline std::string CleanText(const std::string& text) {
  const std::string clean = EscapeControl(text);
  return clean.substr(0, CharacterStart(clean, kMaxTextBytes));
}

class CheckedFields {
 public:
  // Each returns the value, or a harmless one after noting what is wrong.
  template <typename Number>
  int64_t Range(const char* field, Number value, int64_t low, int64_t high) {
    if (std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high)) {
      return static_cast<int64_t>(value);
    }
    Fail(field, absl::StrCat(value, ", accepted: ", low, " to ", high));
    return low;
  }
  uint16_t Port(const char* field, uint32_t value, int64_t low) {
    return static_cast<uint16_t>(Range(field, value, low, 65535));
  }
  std::string Text(const char* field, const std::string& text, size_t min_bytes, size_t max_bytes) {
    if (text.size() < min_bytes) Fail(field, "empty");
    std::string clean = CleanText(text);
    // Escaping makes longer, and that is what others are told, who have the same limit.
    Size(field, std::max(text.size(), clean.size()), max_bytes);
    return clean;
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
