#include "launcher/status/memory_cgroup.h"

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

using Directories = std::vector<std::string>;

constexpr char kHybridMounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr char kV2Mount[] = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";

TEST_CASE("memory cgroup: v1's where it has the controller, up to the mount") {
  const auto found = FindMemoryCgroup(kHybridMounts, "5:devices:/\n4:cpu,memory:/a/b\n0::/c\n");
  REQUIRE(found);
  CHECK(*found ==
        MemoryCgroup{.is_v2 = false,
                     .directories = {"/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a",
                                     "/sys/fs/cgroup/memory"}});
  CHECK(FindMemoryCgroup(kHybridMounts, "4:memory:/\n")->directories ==
        Directories{"/sys/fs/cgroup/memory"});
}

TEST_CASE("memory cgroup: v2's otherwise") {
  const auto found = FindMemoryCgroup(kV2Mount, "0::/job/step\n");
  REQUIRE(found);
  CHECK(*found == MemoryCgroup{.is_v2 = true,
                               .directories = {"/sys/fs/cgroup/job/step", "/sys/fs/cgroup/job",
                                               "/sys/fs/cgroup"}});
}

TEST_CASE("memory cgroup: a container whose mount is its own part of the tree") {
  const std::string mount =
      "35 31 0:32 /docker/0a1b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  CHECK(FindMemoryCgroup(mount, "4:memory:/docker/0a1b\n")->directories ==
        Directories{"/sys/fs/cgroup/memory"});
  CHECK(FindMemoryCgroup(mount, "4:memory:/docker/0a1b/x\n")->directories ==
        Directories{"/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"});
  // Another's.
  CHECK_FALSE(FindMemoryCgroup(mount, "4:memory:/docker/0a1bc\n"));
  CHECK_FALSE(FindMemoryCgroup(mount, "4:memory:/\n"));
  // With a namespace of its own it sees itself at the top, and others outside.
  CHECK(FindMemoryCgroup(kV2Mount, "0::/\n")->directories == Directories{"/sys/fs/cgroup"});
  CHECK_FALSE(FindMemoryCgroup(kV2Mount, "0::/../other\n"));
}

TEST_CASE("memory cgroup: blanks in names are told in octal") {
  const std::string mount = "35 31 0:32 / /mnt/my\\040groups rw - cgroup cgroup rw,xattr,memory\n";
  CHECK(FindMemoryCgroup(mount, "4:memory:/a b:c\n")->directories ==
        Directories{"/mnt/my groups/a b:c", "/mnt/my groups"});
}

TEST_CASE("memory cgroup: none is none") {
  CHECK_FALSE(FindMemoryCgroup("", ""));
  CHECK_FALSE(FindMemoryCgroup(kHybridMounts, ""));
  CHECK_FALSE(FindMemoryCgroup("", "0::/a\n"));
  CHECK_FALSE(FindMemoryCgroup(kV2Mount, "4:memory:/a\n"));
  CHECK_FALSE(FindMemoryCgroup(" - cgroup2\n - \n-\n31 23 - cgroup2 x y\n", "0::/a\n"));
  std::string deep = "0::";
  for (int i = 0; i < 1000; ++i) deep += "/x";
  CHECK(FindMemoryCgroup(kV2Mount, deep)->directories.size() == 64);
}

TEST_CASE("memory cgroup: numbers, and what means that there is no limit") {
  CHECK(ParseCgroupBytes("67108864\n") == 67108864);
  CHECK(ParseCgroupBytes("0\n") == 0);
  CHECK_FALSE(ParseCgroupBytes("max\n"));
  CHECK_FALSE(ParseCgroupBytes("9223372036854771712\n"));
  CHECK_FALSE(ParseCgroupBytes("9223372036854775808\n"));
  CHECK_FALSE(ParseCgroupBytes("-1\n"));
  CHECK_FALSE(ParseCgroupBytes(""));
  CHECK_FALSE(ParseCgroupBytes("1 2\n"));
}

TEST_CASE("memory cgroup: numbers by their keys") {
  const std::string events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
  CHECK(ParseKeyedNumber(events, "oom_kill") == 2);
  CHECK(ParseKeyedNumber(events, "oom") == 3);
  CHECK_FALSE(ParseKeyedNumber(events, "oom_k"));
  CHECK(ParseKeyedNumber("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "oom_kill") == 1);
  CHECK_FALSE(ParseKeyedNumber("oom_kill_disable 0\nunder_oom 0\n", "oom_kill"));
  const std::string memory = "MemTotal:       25165432 kB\nMemAvailable:    3218236 kB\n";
  CHECK(ParseKeyedNumber(memory, "MemAvailable") == int64_t{3218236} * 1024);
  CHECK_FALSE(ParseKeyedNumber("MemTotal: 9223372036854775807 kB\n", "MemTotal"));
  CHECK_FALSE(ParseKeyedNumber("oom_kill x\n", "oom_kill"));
  CHECK_FALSE(ParseKeyedNumber("oom_kill", "oom_kill"));
  CHECK_FALSE(ParseKeyedNumber("", ""));
}

}  // namespace
}  // namespace ddprun::launcher
