// What the kernel's files say of free memory, from copies of them.
#include "worker_runtime/comm/free_memory.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddp::internal {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = 1 << 20;

// A root folder with a machine of 8192 MiB, and what is written into it.
struct Root {
  Root() { Write("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB\n"); }
  void Write(const std::string& path, const std::string& text) const {
    const fs::path file = dir.path().string() + path;
    fs::create_directories(file.parent_path());
    ddprun::testing::WriteFile(file, text);
  }
  // `inactive`: of the usage, pages of files that nobody uses.
  void WriteV2(const std::string& group, const std::string& max, uint64_t current,
               uint64_t inactive) const {
    const std::string folder = "/sys/fs/cgroup" + group;
    Write(folder + "/memory.max", max + "\n");
    Write(folder + "/memory.current", std::to_string(current) + "\n");
    Write(folder + "/memory.stat",
          "anon 1\nactive_file 0\ninactive_file " + std::to_string(inactive) + "\nslab 2\n");
  }
  FreeMemory Ask() const { return AskFreeMemory(dir.path()); }

  const ddprun::testing::TempDir dir;
};

TEST_CASE("free memory: the machine's, where no cgroup has less") {
  Root root;
  CHECK(root.Ask().bytes == 8192 * kMiB);
  CHECK(root.Ask().where == "on this machine");
  root.Write("/proc/self/cgroup", "0::/user/job\n");
  root.WriteV2("/user/job", "max", 5 * kMiB, 0);
  root.WriteV2("/user", std::to_string(99999 * kMiB), 5 * kMiB, 0);
  CHECK(root.Ask().bytes == 8192 * kMiB);
}

TEST_CASE("free memory: what a cgroup or one above it leaves, file pages counted as free") {
  Root root;
  root.Write("/proc/self/cgroup", "0::/user/job\n");
  root.WriteV2("/user/job", std::to_string(100 * kMiB), 60 * kMiB, 20 * kMiB);
  CHECK(root.Ask().bytes == 60 * kMiB);
  CHECK(root.Ask().where == "in the cgroup /user/job");
  root.WriteV2("/user", std::to_string(80 * kMiB), 70 * kMiB, 0);
  CHECK(root.Ask().bytes == 10 * kMiB);
  CHECK(root.Ask().where == "in the cgroup /user");
  root.WriteV2("/user", std::to_string(60 * kMiB), 70 * kMiB, 0);  // lowered meanwhile
  CHECK(root.Ask().bytes == 0);
}

TEST_CASE("free memory: a cgroup that is full of a data set's pages is not full") {
  Root root;
  root.Write("/proc/self/cgroup", "0::/job\n");
  root.WriteV2("/job", std::to_string(100 * kMiB), 99 * kMiB, 0);
  root.Write("/sys/fs/cgroup/job/memory.stat",
             "inactive_file 1048576\nactive_file 52428800\nslab_reclaimable 2097152\n");
  CHECK(root.Ask().bytes == 54 * kMiB);
}

TEST_CASE("free memory: version 1, and a container whose own group is the mount's root") {
  Root root;
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory:/docker/abc\n0::/\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(50 * kMiB));
  root.Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(20 * kMiB));
  root.Write("/sys/fs/cgroup/memory/memory.stat",
             "active_file 9\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n");
  CHECK(root.Ask().bytes == 33 * kMiB);
  CHECK(root.Ask().where == "in the cgroup /");
}

TEST_CASE("free memory: files that say nothing, or nonsense, set no limit") {
  const ddprun::testing::TempDir empty;
  CHECK(AskFreeMemory(empty.path()).bytes == UINT64_MAX);
  Root root;
  for (const char* groups :
       {"", "\n", "0::", "x", "0::/job", "::::/a/b", "4:memory:job", "0::///"}) {
    CAPTURE(groups);
    root.Write("/proc/self/cgroup", groups);
    CHECK(root.Ask().bytes == 8192 * kMiB);
  }
  root.Write("/proc/self/cgroup", "0::/job\n");
  root.WriteV2("/job", "-5", 1, 0);
  CHECK(root.Ask().bytes == 8192 * kMiB);
  root.Write("/proc/meminfo", "MemAvailable: many kB\n");
  CHECK(root.Ask().bytes == UINT64_MAX);
}

TEST_CASE("free memory: a request that cannot be met says what is free, and where") {
  CHECK(CheckFreeMemory(1, "allocate").ok());
  const absl::Status status = CheckFreeMemory(uint64_t{1} << 50, "allocate a buffer");
  CHECK(absl::IsResourceExhausted(status));
  CHECK(absl::StartsWith(status.message(),
                         "allocate a buffer: it needs 1125899906842624 bytes, and "));
}

}  // namespace
}  // namespace ddp::internal
