#include "launcher/status/process_facts.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "absl/strings/str_replace.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// As Linux 6.18 wrote it.
std::string Stat(const std::string& name, const std::string& times = "120 30 7 3") {
  return "15210 (" + name + ") S 15165 15210 9605 0 -1 4194304 103 0 0 0 " + times +
         " 20 0 12 0 57102 3133440 360 18446744073709551615 94279361282048 94279361301929 "
         "140732117042400 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 94279361317936 94279361319552\n";
}

TEST_CASE("process facts: the kernel's line is read") {
  const auto stat = ParseProcessStat(Stat("python3"));
  REQUIRE(stat);
  CHECK(*stat == ProcessStat{.pid = 15210,
                             .parent = 15165,
                             .start_ticks = 57102,
                             .cpu_ticks = 160,
                             .resident_pages = 360,
                             .threads = 12,
                             .state = 'S'});
}

TEST_CASE("process facts: a name that looks like the rest of the line changes nothing") {
  const auto plain = ParseProcessStat(Stat("python3"));
  CHECK(ParseProcessStat(Stat(") R 1 1 1 1")) == plain);
  CHECK(ParseProcessStat(Stat("a b\nc) Z (")) == plain);
  CHECK(ParseProcessStat(Stat(std::string("\0\xff\x1b[2J", 6))) == plain);
  CHECK(ParseProcessStat(Stat("")) == plain);
}

TEST_CASE("process facts: what is no such line gives nothing") {
  for (const char* text : {"", ")", "1 (a)", "1 (a) S", "1 (a) SS 1 2 3", "x (a) S 1 2 3",
                           "1 (a) S 1 2 3 four 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseProcessStat(text));
  }
  const std::string whole = Stat("python3");
  // The pid, the parent's, the number of threads and the start, as no kernel has them.
  for (const auto& [from, to] : {std::pair("15210", "0"), std::pair("15210", "-15210"),
                                 std::pair("15165", "-1"), std::pair("15165", "4294967296"),
                                 std::pair(" 12 ", " 4294967296 "), std::pair("57102", "-1")}) {
    CAPTURE(to);
    CHECK_FALSE(ParseProcessStat(absl::StrReplaceAll(whole, {{from, to}})));
  }
  for (size_t size = 0; size < 85; ++size) CHECK_FALSE(ParseProcessStat(whole.substr(0, size)));
}

TEST_CASE("process facts: times that no machine reaches do not overflow") {
  const auto stat = ParseProcessStat(Stat("a",
                                          "9223372036854775807 9223372036854775807 -5 "
                                          "9223372036854775807"));
  REQUIRE(stat);
  CHECK(stat->cpu_ticks == 3 * (int64_t{1} << 60));
  CHECK_FALSE(ParseProcessStat(Stat("a", "9223372036854775808 0 0 0")));
}

TEST_CASE("process facts: memory, threads and state of the status") {
  const std::string text =
      "Name:\tcat\nUmask:\t0022\nState:\tD (disk sleep)\nVmHWM:\t  1752 kB\n"
      "VmRSS:\t    1752 kB\nThreads:\t7\n";
  CHECK(ParseProcessStatus(text) ==
        ProcessStatus{.resident_bytes = 1752 * 1024, .threads = 7, .state = 'D'});
  // The kernel escapes an end of a line in a name.
  CHECK(ParseProcessStatus("Name:\tx\\nVmRSS:\t9 kB\nState:\tS (sleeping)\n").state == 'S');
  CHECK_FALSE(ParseProcessStatus("Name:\tx\\nVmRSS:\t9 kB\n").resident_bytes);
  CHECK_FALSE(ParseProcessStatus("VmRSS:\t99999999999999999999 kB\n").resident_bytes);
  CHECK_FALSE(ParseProcessStatus("VmRSS:\t5000000000000000000 kB\n").resident_bytes);
  CHECK_FALSE(ParseProcessStatus("VmRSS:\t-4 kB\n").resident_bytes);
  CHECK_FALSE(ParseProcessStatus("VmRSS:").resident_bytes);
  CHECK(ParseProcessStatus("") == ProcessStatus{});
}

TEST_CASE("process facts: a line of the status, by its name at the line's beginning") {
  const std::string text = "Name:\tShdPnd:\nSigPnd:\t0000000000040000\nShdPnd:\t0\nTracerPid:\t";
  CHECK(StatusLine(text, "SigPnd:") == "\t0000000000040000");
  CHECK(StatusLine(text, "ShdPnd:") == "\t0");
  CHECK(StatusLine(text, "TracerPid:") == "\t");
  CHECK(StatusLine(text, "Pnd:") == "");
}

TEST_CASE("process facts: where it waits") {
  CHECK(ParseWaitChannel("futex_wait_queue") == "futex_wait_queue");
  CHECK(ParseWaitChannel("do_wait.part.0\n") == "do_wait");
  CHECK(ParseWaitChannel("0") == "");
  CHECK(ParseWaitChannel("") == "");
  CHECK(ParseWaitChannel("evil\x1b[2J") == "");
  CHECK(ParseWaitChannel(std::string(100'000, 'a')).size() == 64);
}

TEST_CASE("process facts: children up to a bound") {
  CHECK(ParseChildren("12 13 14 ", 100) == std::vector<int>{12, 13, 14});
  CHECK(ParseChildren("12 13 14 ", 2) == std::vector<int>{12, 13});
  CHECK(ParseChildren("12 x 14 ", 100) == std::vector<int>{12});
  CHECK(ParseChildren("0 12", 100).empty());
  CHECK(ParseChildren("", 100).empty());
}

ProcessSample At(Duration at, int64_t ticks, int64_t start = 7) {
  return {.at = TimePoint(at), .pid = 42, .start_ticks = start, .cpu_ticks = ticks};
}

TEST_CASE("process rates: cores in use are the ticks between two samples") {
  ProcessRates rates(100, 8);
  CHECK_FALSE(rates.cpu());
  rates.Add(At(seconds(10), 1000));
  CHECK_FALSE(rates.cpu());
  CHECK_FALSE(rates.IdleSeconds(TimePoint(seconds(11))));
  rates.Add(At(seconds(15), 1750));
  CHECK(rates.cpu() == 1.5);
  CHECK(rates.IdleSeconds(TimePoint(seconds(16))) == 0.0);
  // A child is waited for that used 100 s before anybody saw it.
  rates.Add(At(seconds(20), 11750));
  CHECK(rates.cpu() == 8.0);
  // One goes that nobody waits for.
  rates.Add(At(seconds(25), 11000));
  CHECK(rates.cpu() == 0.0);
}

TEST_CASE("process rates: idle since the last sample that saw it work, looking around excepted") {
  ProcessRates rates(100, 8);
  rates.Add(At(seconds(0), 1000));
  rates.Add(At(seconds(5), 1100));
  rates.Add(At(seconds(10), 1101));
  CHECK(rates.cpu() == doctest::Approx(0.002));
  CHECK(rates.IdleSeconds(TimePoint(seconds(10))) == 5.0);
  rates.Add(At(seconds(15), 1105));
  CHECK(rates.IdleSeconds(TimePoint(milliseconds(15500))) == 10.5);
  rates.Add(At(seconds(20), 1111));
  CHECK(rates.IdleSeconds(TimePoint(seconds(20))) == 0.0);
}

TEST_CASE("process rates: one that never worked is idle since its first sample") {
  ProcessRates rates(100, 8);
  rates.Add(At(seconds(1), 3));
  rates.Add(At(seconds(6), 3));
  CHECK(rates.IdleSeconds(TimePoint(seconds(7))) == 6.0);
}

TEST_CASE("process rates: another process begins anew, also under the same pid") {
  ProcessRates rates(100, 8);
  rates.Add(At(seconds(0), 1000));
  rates.Add(At(seconds(5), 1500));
  rates.Add(At(seconds(10), 20, 99));
  CHECK_FALSE(rates.cpu());
  CHECK_FALSE(rates.IdleSeconds(TimePoint(seconds(10))));
  rates.Add(At(seconds(10), 25, 99));  // no time has passed
  CHECK_FALSE(rates.cpu());
}

TEST_CASE("process rates: a rank is filled from them, and left alone without a process") {
  ProcessRates rates(100, 8);
  ProcessSample sample = At(seconds(5), 500);
  rates.Add(At(seconds(0), 0));
  sample.resident_bytes = 4096;
  sample.wait = "futex_wait_queue";
  rates.Add(sample);
  RankView rank;
  FillRank(nullptr, rates, TimePoint(seconds(5)), rank);
  CHECK(rank == RankView{});
  FillRank(&sample, rates, TimePoint(seconds(5)), rank);
  CHECK(rank.cpu == 1.0);
  CHECK(rank.idle_s == 0.0);
  CHECK(rank.memory == 4096);
  CHECK(rank.wait == "futex_wait_queue");
}

TEST_CASE("process facts: the time without a core is the main thread's, as a share") {
  CHECK(ParseCoreWait("5000 1500000000 7\n") == 1'500'000'000);
  for (const char* text : {"", "5", "5 x 7", "5 -1 7"}) CHECK_FALSE(ParseCoreWait(text));
  ProcessRates rates(100, 4);
  ProcessSample sample{.pid = 7, .main_pid = 8, .core_wait_ns = 1'000'000'000};
  rates.Add(sample);
  CHECK_FALSE(rates.core_wait_share());
  sample.at = TimePoint(seconds(4));
  sample.core_wait_ns = 2'000'000'000;
  rates.Add(sample);
  RankView rank;
  FillRank(&sample, rates, sample.at, rank);
  CHECK(rank.core_wait_share == 0.25);
  // Another process is the program now.
  sample.at = TimePoint(seconds(8));
  sample.main_pid = 9;
  rates.Add(sample);
  CHECK_FALSE(rates.core_wait_share());
  sample.at = TimePoint(seconds(12));
  sample.core_wait_ns = std::nullopt;
  rates.Add(sample);
  CHECK_FALSE(rates.core_wait_share());
}

TEST_CASE("process facts: a rank of small load that ends steps is not idle") {
  ProcessRates rates(100, 4);
  ProcessSample sample{.pid = 7};
  for (int s = 0; s <= 91; ++s) {
    sample.at = TimePoint(seconds(s));
    rates.Add(sample);
  }
  RankView rank;
  FillRank(&sample, rates, sample.at, rank);
  CHECK(rank.cpu == 0.0);
  CHECK(rank.idle_s == 91.0);
  rank.step = 1666;
  rank.step_age_s = 0.05;
  FillRank(&sample, rates, sample.at, rank);
  CHECK(rank.idle_s == 0.05);
  rank.step_age_s = 1000;  // of a step before it last used CPU time
  FillRank(&sample, rates, sample.at, rank);
  CHECK(rank.idle_s == 91.0);
}

}  // namespace
}  // namespace ddprun::launcher
