#include "worker_runtime/counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "ddp/progress.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::testing::InChild;
using ddprun::testing::Runfile;
using ddprun::testing::SkipTest;
using ddprun::testing::Subprocess;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using TimePoint = Counters::Clock::time_point;

constexpr char kPython[] = "/usr/bin/python3";

// A page as an agent makes it. Only children of the test open it: a process is forked for good.
struct Page {
  size_t bytes = kCountersBytes;
  uint64_t magic = kCountersMagic;
  uint64_t version = kCountersVersion;
  int seals = F_SEAL_SHRINK;
};

class MadePage {
 public:
  explicit MadePage(const Page& page = {})
      : fd_(memfd_create("counters", MFD_ALLOW_SEALING)), text_(std::to_string(fd_.get())) {
    DDP_CHECK(fd_.is_open() && ftruncate(fd_.get(), static_cast<off_t>(page.bytes)) == 0);
    Write(kMagicWord, page.magic);
    Write(kVersionWord, page.version);
    DDP_CHECK(fcntl(fd_.get(), F_ADD_SEALS, page.seals) == 0);
  }

  const std::string& text() const { return text_; }
  int fd() const { return fd_.get(); }
  uint64_t operator[](size_t word) const {
    uint64_t value = 0;
    (void)!pread(fd_.get(), &value, sizeof value, static_cast<off_t>(word * sizeof value));
    return value;
  }
  void Write(size_t word, uint64_t value) {
    DDP_CHECK(pwrite(fd_.get(), &value, sizeof value, static_cast<off_t>(word * sizeof value)) ==
              sizeof value);
  }
  bool IsUntouched() const {
    for (size_t word = kWriterWord; word < kCounterWords; ++word) {
      if ((*this)[word] != 0) return false;
    }
    return true;
  }
  uint64_t OfGroup(size_t slot, size_t word) const {
    return (*this)[kFirstGroupWord + slot * kGroupWords + word];
  }

 private:
  UniqueFd fd_;
  std::string text_;
};

std::string Report(const MadePage& page, int64_t step, int64_t samples = 0) {
  return InChild({}, [&]() -> std::string {
    const auto counters = Counters::Open(page.text().c_str());
    if (counters == nullptr) return "none";
    counters->ReportStep(step, samples);
    return "reported";
  });
}

TEST_CASE("counters: steps and phases stand in the page as its header says") {
  const MadePage page;
  const auto report = [&page]() -> std::string {
    const auto at = [&page](size_t word) { return static_cast<int64_t>(page[word]); };
    ReportPhase(Phase::kStart);
    if (page[kPhaseWord] != 1 || page[kPhaseSinceWord] == 0) return "start";
    ReportStep(7, 32);
    if (page[kPhaseWord] != 2 || page[kPhaseSinceWord] != page[kFirstStepAtWord]) return "train";
    ddp_report_step(8, -5);
    ReportPhase(Phase::kEvaluation);
    std::this_thread::sleep_for(milliseconds(20));
    if (page[kEvaluationTimeWord] != 0) return "a phase that has not ended";
    ddp_report_phase(DDP_PHASE_CHECKPOINT);
    std::this_thread::sleep_for(milliseconds(10));
    ReportStep(9, 0);
    if (page[kPhaseWord] != 4) return "checkpoint";
    for (int number : {0, 5, -1}) ddp_report_phase(number);
    if (page[kPhaseWord] != 4) return "no phase";
    ReportPhase(Phase::kTrain);
    std::this_thread::sleep_for(milliseconds(5));
    ReportStep(-10, 3);
    const int64_t all = at(kStepAtWord) - at(kFirstStepAtWord);
    const int64_t left_out = at(kEvaluationTimeWord) + at(kCheckpointTimeWord);
    if (at(kEvaluationTimeWord) < 20'000'000) return "evaluation";
    if (at(kCheckpointTimeWord) < 10'000'000) return "checkpoint's time";
    if (at(kStepTimeWord) != all - left_out) return "step time";
    if (at(kLongestStepWord) < 5'000'000) return "longest step";
    if (at(kLongestStepWord) > at(kStepTimeWord)) return "longer than all";
    return std::to_string(getpid());
  };
  const std::string pid = InChild({{kCountersVar, page.text()}}, report);
  CHECK(pid == std::to_string(page[kWriterWord]));
  CHECK(page[kStepsWord] == 4);
  CHECK(static_cast<int64_t>(page[kStepWord]) == -10);
  CHECK(page[kSamplesWord] == 35);
}

TEST_CASE("counters: waited and exposed times add up, of several threads") {
  const MadePage page;
  CHECK(InChild({}, [&] {
          const auto counters = Counters::Open(page.text().c_str());
          std::vector<std::thread> threads;
          for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&counters] {
              // no limit: figures
              for (int j = 0; j < 1000; ++j) counters->AddWaited(nanoseconds(3));
              counters->AddExposed(nanoseconds(5));  // no limit: a figure
              counters->AddExposed(nanoseconds(-5));
            });
          }
          for (std::thread& thread : threads) thread.join();
          return std::string("done");
        }) == "done");
  CHECK(page[kWaitedWord] == 12'000);
  CHECK(page[kExposedWord] == 20);
}

TEST_CASE("counters: one process writes, its forked child does not, and the next does after it") {
  MadePage page;
  const std::string said = InChild({}, [&]() -> std::string {
    const auto counters = Counters::Open(page.text().c_str());
    counters->ReportStep(1, 1);
    GroupCounters* group = counters->OpenGroup(7, "group", 0, 2);
    const std::string in_fork = InChild({{kCountersVar, page.text()}}, [&]() -> std::string {
      counters->ReportStep(2, 2);
      counters->SetPhase(Phase::kCheckpoint);
      counters->AddWaited(nanoseconds(1));  // no limit: a figure
      group->Called(1, 0, Counters::Clock::now());
      group->Close();
      ddp_report_step(3, 3);
      const bool has_any = counters->OpenGroup(8, "", 0, 1) != nullptr ||
                           Counters::OfThisProcess() != nullptr ||
                           Counters::Open(page.text().c_str()) != nullptr;
      return has_any ? "has" : "silent";
    });
    // Another program: the descriptor is close-on-exec.
    return (fcntl(page.fd(), F_GETFD) & FD_CLOEXEC) != 0 ? in_fork : "inherited";
  });
  CHECK(said == "silent");
  CHECK(page[kStepsWord] == 1);
  CHECK(page[kPhaseWord] == 2);
  CHECK(page[kWaitedWord] == 0);
  CHECK(page.OfGroup(0, kGroupKeyWord) == 7);
  CHECK(page.OfGroup(0, kGroupCalledWord) == 0);

  const uint64_t dead = page[kWriterWord];
  page.Write(kWriterWord, static_cast<uint64_t>(getpid()));  // which lives
  CHECK(Report(page, 5) == "none");
  page.Write(kWriterWord, uint64_t{1} << 40);
  CHECK(Report(page, 5) == "none");
  CHECK(page[kStepWord] == 1);
  page.Write(kWriterWord, dead);
  CHECK(Report(page, 6, 4) == "reported");
  CHECK(page[kStepsWord] == 1);
  CHECK(page[kSamplesWord] == 4);
  CHECK(page.OfGroup(0, kGroupKeyWord) == 0);
}

TEST_CASE("counters: another copy of the library in the process goes on with the page") {
  const MadePage page;
  CHECK(InChild({}, [&]() -> std::string {
          const auto counters = Counters::Open(page.text().c_str());
          counters->ReportStep(0, 0);
          counters->ReportStep(1, 1);
          counters->SetPhase(Phase::kEvaluation);
          std::this_thread::sleep_for(milliseconds(1));
          counters->SetPhase(Phase::kTrain);
          const auto other = Counters::Open(page.text().c_str());
          if (other == nullptr) return "none";
          other->ReportStep(2, 2);
          counters->OpenGroup(5, "first", 0, 1);
          other->OpenGroup(6, "second", 0, 1);
          return "both";
        }) == "both");
  CHECK(page[kStepsWord] == 3);
  CHECK(page[kSamplesWord] == 3);
  CHECK(page[kStepTimeWord] + page[kEvaluationTimeWord] ==
        page[kStepAtWord] - page[kFirstStepAtWord]);
  CHECK(page.OfGroup(0, kGroupKeyWord) == 5);
  CHECK(page.OfGroup(1, kGroupKeyWord) == 6);
}

TEST_CASE("counters: a page that is not as it should be is left alone") {
  for (const Page& page :
       {Page{.bytes = kCountersBytes - 1}, Page{.magic = 1}, Page{.version = kCountersVersion + 1},
        Page{.seals = 0}, Page{.seals = F_SEAL_GROW},
        Page{.seals = F_SEAL_SHRINK | F_SEAL_WRITE}}) {
    const MadePage made(page);
    CHECK(Report(made, 1) == "none");
    CHECK(made.IsUntouched());
  }
  const MadePage page;
  const UniqueFd folder(open("/", O_RDONLY | O_CLOEXEC));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  CHECK(InChild({}, [&]() -> std::string {
          const std::vector<std::string> texts = {"",
                                                  "x",
                                                  "-1",
                                                  "99999999999",
                                                  "1000",
                                                  page.text() + " ",
                                                  "+" + page.text(),
                                                  "0x",
                                                  "0",
                                                  std::to_string(folder.get()),
                                                  std::to_string(null.get())};
          for (const std::string& text : texts) {
            if (Counters::Open(text.c_str()) != nullptr) return text;
          }
          return Counters::Open(nullptr) == nullptr ? "none" : "null";
        }) == "none");
  CHECK(page.IsUntouched());
  CHECK(InChild({{kCountersVar, ""}}, [] {
          ddp_report_step(1, 1);
          ddp_report_phase(DDP_PHASE_EVALUATION);
          return std::string(Counters::OfThisProcess() == nullptr ? "none" : "some");
        }) == "none");
}

std::string NameIn(const MadePage& page, size_t slot) {
  std::string name(kGroupNameBytes, '?');
  for (size_t i = 0; i < kGroupNameBytes / sizeof(uint64_t); ++i) {
    const uint64_t word = page.OfGroup(slot, kGroupNameWord + i);
    name.replace(i * sizeof word, sizeof word, reinterpret_cast<const char*>(&word), sizeof word);
  }
  return name.substr(0, name.find('\0'));
}

TEST_CASE("counters: a group's slot says how far it is, and is free after its end") {
  const MadePage page;
  const auto at = [](int64_t ns) { return TimePoint(nanoseconds(ns)); };
  const auto busy_since = [&page](size_t slot) { return page.OfGroup(slot, kGroupBusySinceWord); };
  CHECK(InChild({}, [&]() -> std::string {
          const auto counters = Counters::Open(page.text().c_str());
          if (counters->OpenGroup(0, "", 0, 1) != nullptr) return "key 0";
          GroupCounters* group = counters->OpenGroup(77, std::string(62, 'x') + "\u00e9", 3, 8);
          if (busy_since(0) != 0) return "at first";
          group->Called(1, 4, at(100));
          if (busy_since(0) != 100) return "the first";
          group->Called(2, 1, at(110));
          if (busy_since(0) != 100) return "a second";
          group->Done(1, at(120));
          if (busy_since(0) != 120) return "the second alone";
          group->Done(2, at(130));
          if (busy_since(0) != 0) return "none under way";
          group->Called(9, 2, at(140));  // a replay stands for several numbers
          if (busy_since(0) != 140) return "again";
          for (size_t i = 1; i < kGroupSlots; ++i) {
            if (counters->OpenGroup(100 + i, "other", 0, 1) == nullptr) return "too few";
          }
          if (counters->OpenGroup(1000, "one too many", 0, 1) != nullptr) return "too many";
          GroupCounters* last = nullptr;
          group->Close();
          if (page.OfGroup(0, kGroupKeyWord) != 0) return "not free";
          last = counters->OpenGroup(78, "next", 0, 1);
          if (last == nullptr || page.OfGroup(0, kGroupCalledWord) != 0) return "not reused";
          last->Close();
          group = counters->OpenGroup(77, std::string(62, 'x') + "\u00e9", 3, 8);
          group->Called(5, 3, at(200));
          group->Done(5, at(210));
          return "done";
        }) == "done");
  CHECK(page.OfGroup(0, kGroupKeyWord) == 77);
  CHECK(page.OfGroup(0, kGroupPlaceWord) == (uint64_t{3} << 32 | 8));
  CHECK(page.OfGroup(0, kGroupCalledWord) == 5);
  CHECK(page.OfGroup(0, kGroupDoneWord) == 5);
  CHECK(page.OfGroup(0, kGroupCalledAtWord) == 200);
  CHECK(page.OfGroup(0, kGroupDoneAtWord) == 210);
  CHECK(page.OfGroup(0, kGroupOpWord) == 3);
  CHECK(NameIn(page, 0) == std::string(62, 'x'));
  CHECK(NameIn(page, 1) == "other");
}

// Of two operations in each turn, one thread calls the second while the other one ends the first.
std::string CallAndEndAtOnce(const MadePage& page, uint64_t turns) {
  const auto counters = Counters::Open(page.text().c_str());
  GroupCounters* group = counters->OpenGroup(1, "", 0, 2);
  std::atomic<uint64_t> begun = 0;
  std::atomic<uint64_t> called = 0;
  const auto await = [](const std::atomic<uint64_t>& turn, uint64_t number) {
    while (turn < number) std::this_thread::yield();
  };
  std::thread caller([&] {
    for (uint64_t turn = 1; turn <= turns; ++turn) {
      await(begun, turn);
      group->Called(2 * turn, 0, Counters::Clock::now());
      called = turn;
    }
  });
  std::string wrong;
  for (uint64_t turn = 1; turn <= turns; ++turn) {
    group->Called(2 * turn - 1, 0, Counters::Clock::now());
    const TimePoint now = Counters::Clock::now();
    begun = turn;
    // Each turn at another moment of the call.
    for (uint64_t i = 0; i < turn % 256; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    group->Done(2 * turn - 1, now);
    await(called, turn);
    if (page.OfGroup(0, kGroupBusySinceWord) == 0) wrong += " " + std::to_string(turn);
    group->Done(2 * turn, Counters::Clock::now());
    if (page.OfGroup(0, kGroupBusySinceWord) != 0) wrong += " after " + std::to_string(turn);
  }
  caller.join();
  return wrong;
}

TEST_CASE("counters: what is under way has a moment since when, whatever the threads do") {
  const MadePage page;
  CHECK(InChild({}, [&] { return CallAndEndAtOnce(page, 100'000); }).empty());
}

TEST_CASE("counters: Python writes the same words") {
  if (access(kPython, X_OK) != 0) return SkipTest(std::string("no ") + kPython);
  const MadePage ours;
  CHECK(InChild({{kCountersVar, ours.text()}}, [] {
          ReportStep(3, 10);
          ReportPhase(Phase::kEvaluation);
          ReportPhase(Phase::kTrain);
          ReportStep(4, 10);
          ReportPhase(Phase::kCheckpoint);
          return std::string("done");
        }) == "done");
  const MadePage theirs;
  const std::filesystem::path package(Runfile("python/ddprun/__init__.py"));
  Subprocess python({kPython, "-c",
                     "import ddprun\n"
                     "ddprun.report_step(3, 10)\n"
                     "with ddprun.phase('evaluation'): pass\n"
                     "ddprun.report_step(4, 10)\n"
                     "ddprun.phase('checkpoint')\n"},
                    {.env = {{"PYTHONPATH", package.parent_path().parent_path().string()},
                             {"PYTHONDONTWRITEBYTECODE", "1"},
                             {kCountersVar, theirs.text()}}});
  REQUIRE_MESSAGE(python.Wait() == 0, python.Describe());
  for (size_t word = kMagicWord; word < kCounterWords; ++word) {
    CAPTURE(word);
    const bool is_time = word == kPhaseSinceWord || word == kStepAtWord ||
                         (word >= kFirstStepAtWord && word <= kCheckpointTimeWord);
    if (is_time || word == kWriterWord) {
      CHECK((ours[word] == 0) == (theirs[word] == 0));
    } else {
      CHECK(ours[word] == theirs[word]);
    }
  }
}

}  // namespace
}  // namespace ddp::internal
