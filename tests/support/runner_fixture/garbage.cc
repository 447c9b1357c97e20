#include <doctest/doctest.h>

#include <cstdio>
#include <string>

TEST_CASE("garbage: \xff\x01 <&> \xc3\xa9") {
  const std::string bytes("\x00\x1b[31m\xfe\xed ]]>", 11);
  fwrite(bytes.data(), 1, bytes.size(), stdout);
  CHECK(bytes == "");
}
