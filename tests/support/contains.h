// What a text contains, as tests ask for it.
#ifndef DDPRUN_TESTS_SUPPORT_CONTAINS_H_
#define DDPRUN_TESTS_SUPPORT_CONTAINS_H_

#include <cstddef>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::testing {

// Equal to each text that contains `part`: CHECK(text == Contains("is lost")), and != for what must
// not be there. A check that fails shows both.
class Contains {
 public:
  // REQUIRES: `part` is more than a number, which ports and pids contain by chance.
  explicit Contains(absl::string_view part);

  friend bool operator==(absl::string_view text, const Contains& wanted);
  friend std::ostream& operator<<(std::ostream& out, const Contains& wanted);

 private:
  std::string part_;
};

// How often `part` begins in `text`.
size_t CountOf(absl::string_view text, absl::string_view part);

}  // namespace ddprun::testing

// As CHECK: every test uses them, whatever its namespace.
using ddprun::testing::Contains;
using ddprun::testing::CountOf;

#endif  // DDPRUN_TESTS_SUPPORT_CONTAINS_H_
