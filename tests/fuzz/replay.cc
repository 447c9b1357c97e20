#include "tests/fuzz/replay.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddprun::testing {

void Replay(const std::string& target, FuzzTarget feed) {
  int count = 0;
  for (const auto& seed : std::filesystem::directory_iterator("tests/fuzz/corpus/" + target)) {
    // A seed that ends the process is the last line.
    std::printf("%s\n", seed.path().c_str());
    std::fflush(stdout);
    std::ifstream file(seed.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    feed(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++count;
  }
  CHECK(count > 0);
}

}  // namespace ddprun::testing
