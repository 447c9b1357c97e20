// In place of libFuzzer's main: what was found once, and the seeds, with any compiler.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST_CASE("fuzz: every seed of the corpus passes") {
  int count = 0;
  for (const auto& seed : std::filesystem::directory_iterator(FUZZ_CORPUS)) {
    // A seed that ends the process is the last line.
    std::printf("%s\n", seed.path().c_str());
    std::fflush(stdout);
    std::ifstream file(seed.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++count;
  }
  CHECK(count > 0);
}
