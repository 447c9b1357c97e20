#include "launcher/status/memory_facts.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine of 16 GiB, 4 of them free, whose files are below a folder.
class Machine {
 public:
  Machine() { Write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 4194304 kB\n"); }

  void Write(const std::string& path, const std::string& text) {
    const std::string file = root_.path().string() + path;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    testing::WriteFile(file, text);
  }
  void Is(const std::string& mountinfo, const std::string& cgroup) {
    Write("/proc/self/mountinfo", mountinfo);
    Write("/proc/self/cgroup", cgroup);
  }
  MemoryFacts Read() const { return ReadMemoryFacts({.root = root_.path().string()}); }

 private:
  testing::TempDir root_;
};

constexpr char kV2Mount[] = "31 23 0:28 / /cg rw - cgroup2 cgroup2 rw\n";

TEST_CASE("memory facts: the machine's where no cgroup is") {
  Machine machine;
  CHECK(machine.Read() == MemoryFacts{.limit = 16 * kGiB, .used = 12 * kGiB});
  machine.Is(kV2Mount, "0::/job\n");
  machine.Write("/cg/job/memory.max", "max\n");
  machine.Write("/cg/job/memory.current", "1000\n");
  machine.Write("/cg/job/memory.events", "oom 0\noom_kill 2\n");
  CHECK(machine.Read() == MemoryFacts{.limit = 16 * kGiB, .used = 12 * kGiB, .oom_kills = 2});
  // A limit above what the machine has limits nothing.
  machine.Write("/cg/job/memory.max", std::to_string(32 * kGiB));
  CHECK(machine.Read().limit == 16 * kGiB);
}

TEST_CASE("memory facts: v2's smallest limit up the tree, with what belongs to it") {
  Machine machine;
  machine.Is(kV2Mount, "0::/pod/job\n");
  machine.Write("/cg/pod/job/memory.max", std::to_string(8 * kGiB));
  machine.Write("/cg/pod/job/memory.current", std::to_string(kGiB));
  machine.Write("/cg/pod/job/memory.events", "oom_kill 1\n");
  machine.Write("/cg/pod/memory.max", std::to_string(4 * kGiB));
  machine.Write("/cg/pod/memory.current", std::to_string(3 * kGiB));
  machine.Write("/cg/pod/memory.peak", std::to_string(4 * kGiB));
  machine.Write("/cg/pod/memory.events", "oom_kill 7\n");
  machine.Write("/cg/pod/memory.stat", "anon 5\ninactive_file 1073741824\n");
  CHECK(machine.Read() == MemoryFacts{.limit = 4 * kGiB,
                                      .used = 2 * kGiB,
                                      .peak = 4 * kGiB,
                                      .is_cgroup = true,
                                      .oom_kills = 1});
}

TEST_CASE("memory facts: v1's files") {
  Machine machine;
  machine.Is("35 31 0:32 /docker/x /m rw - cgroup cgroup rw,memory\n", "4:memory:/docker/x\n");
  machine.Write("/m/memory.limit_in_bytes", "67108864\n");
  machine.Write("/m/memory.usage_in_bytes", "50000000\n");
  machine.Write("/m/memory.max_usage_in_bytes", "67108864\n");
  machine.Write("/m/memory.stat", "inactive_file 1\ntotal_inactive_file 20000000\n");
  machine.Write("/m/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  CHECK(machine.Read() == MemoryFacts{.limit = 67108864,
                                      .used = 30000000,
                                      .peak = 67108864,
                                      .is_cgroup = true,
                                      .oom_kills = 3});
  machine.Write("/m/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_FALSE(machine.Read().is_cgroup);
}

TEST_CASE("memory facts: nothing to read is nothing known") {
  const testing::TempDir empty;
  CHECK(ReadMemoryFacts({.root = empty.path().string()}) == MemoryFacts{});
}

TEST_CASE("memory facts: of this machine") {
  const MemoryFacts facts = ReadMemoryFacts();
  REQUIRE(facts.limit);
  REQUIRE(facts.used);
  CHECK(*facts.used > 0);
  CHECK(*facts.used <= *facts.limit);
}

TEST_CASE("memory watch: kills count from the first look on, and one is a problem for a minute") {
  MemoryWatch watch;
  TimePoint now(std::chrono::seconds(1000));
  MemoryFacts facts{.limit = 2 * kGiB, .used = kGiB, .is_cgroup = true, .oom_kills = 5};
  const auto look = [&](int after_s) {
    NodeView node{.host = "a"};
    now += std::chrono::seconds(after_s);
    watch.Look(now, facts, node);
    return node;
  };
  CHECK(look(1).oom_kills == 0);
  facts.oom_kills = 7;
  const NodeView node = look(1);
  CHECK(node.memory_limit == 2 * kGiB);
  CHECK(node.memory_used == kGiB);
  CHECK(node.oom_kills == 2);
  REQUIRE(node.problems.size() == 1);
  CHECK(node.problems[0].kind == "oom");
  CHECK(node.problems[0].text == "the kernel killed a process for want of memory (limit 2 GiB)");
  CHECK(look(60).problems.at(0).since_s == 60);
  CHECK(look(1).problems.empty());
  facts.oom_kills.reset();
  CHECK(look(1).oom_kills == 0);
}

}  // namespace
}  // namespace ddprun::launcher
