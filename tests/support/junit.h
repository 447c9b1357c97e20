// The results of a test program as JUnit's XML.
#ifndef DDPRUN_TESTS_SUPPORT_JUNIT_H_
#define DDPRUN_TESTS_SUPPORT_JUNIT_H_

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/file_result.h"

namespace ddprun::testing {

// One test suite a source file, one test case a case. Valid XML 1.0 whatever bytes the results
// hold.
std::string JUnitXml(const std::vector<FileResult>& results);

// `text` as the content of an element or of an attribute in double quotes. What XML 1.0 cannot hold
// (control characters, bytes that are no UTF-8) becomes "\xNN".
std::string EscapeXml(std::string_view text);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_JUNIT_H_
