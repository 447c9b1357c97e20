#include "launcher/doctor/gpu_probe_child.h"

#include <fstream>

#include <doctest/doctest.h>

#include "nvidia_found.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using testing::SkipTest;
using testing::TempDir;

TEST_CASE("nccl build: the CUDA version stands behind NCCL's own") {
  CHECK(CudaInNcclBytes("NCCL version 2.28.7+cuda13.0") == 13000);
  CHECK(CudaInNcclBytes("x NCCL version 2.32.3rc1+cuda12.9\nNCCL version 1+cuda11.8") == 12090);
  CHECK(CudaInNcclBytes(std::string_view("NCCL version %s\0+cuda11.0 "
                                         "NCCL version 2.18.3+cuda12.4\0",
                                         55)) == 12040);
}

TEST_CASE("nccl build: a text that only resembles it says nothing") {
  for (const char* text :
       {"", "NCCL version ", "NCCL version 2.28.7", "NCCL version 2.28.7+cuda",
        "NCCL version 2.28.7+cuda13", "NCCL version 2.28.7+cuda13.", "NCCL version 2.28.7+cudax.1",
        "NCCL version 2.28.7 +cuda13.0", "NCCL version 2.28.7+cuda0.1", "+cuda13.0"}) {
    CAPTURE(text);
    CHECK(CudaInNcclBytes(text) == 0);
  }
}

TEST_CASE("nccl build: a file is searched in pieces, across their borders, but not to its end") {
  const TempDir dir;
  const std::string path = dir.File("libnccl.so.2");
  const std::string line = "NCCL version 2.28.7+cuda13.0";
  constexpr size_t kMiB = 1 << 20;
  for (size_t at : {size_t{0}, size_t{1}, kMiB - 20, kMiB - 1, kMiB, 2 * kMiB - 27, 3 * kMiB}) {
    CAPTURE(at);
    std::ofstream(path, std::ios::binary) << std::string(at, '\0') << line << std::string(9, '\0');
    CHECK(CudaOfNcclFile(path) == 13000);
  }
  std::ofstream file(path, std::ios::binary);
  file.seekp(70 * kMiB);
  file << line;
  file.close();
  CHECK(CudaOfNcclFile(path) == 0);
  CHECK(CudaOfNcclFile(dir.File("none")) == 0);
  CHECK(CudaOfNcclFile(dir.path()) == 0);
}

TEST_CASE("nccl build: NVIDIA's own library says what it is built for") {
  if (NVIDIA_NCCL_LIBRARY[0] == '\0') return SkipTest("no libnccl.so.2 of tools/setup --with-nccl");
  CHECK(CudaOfNcclFile(NVIDIA_NCCL_LIBRARY) >= 12000);
}

}  // namespace
}  // namespace ddprun::launcher
