#include "tests/support/contains.h"

#include "rendezvous/base/check.h"

namespace ddprun::testing {

Contains::Contains(absl::string_view part) : part_(part) {
  DDP_CHECK(part.find_first_not_of("0123456789") != part.npos);
}

bool operator==(absl::string_view text, const Contains& wanted) {
  return text.find(wanted.part_) != absl::string_view::npos;
}

std::ostream& operator<<(std::ostream& out, const Contains& wanted) {
  return out << "Contains(\"" << wanted.part_ << "\")";
}

size_t CountOf(absl::string_view text, absl::string_view part) {
  DDP_CHECK(!part.empty());
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace ddprun::testing
