// A worker that tells of itself as a training program does, and as a broken one does. Its arguments
// are done one after the other (worker_steps.h):
//
//   step:N          reports optimizer step N, of 8 samples
//   steps:PATH      reports one each few milliseconds, from 1 on, until there is such a file
//   phase:NUMBER    enters it (ddp_phase)
//   open:NAME       opens the slot of a process group of all ranks; the same NAME is the same group
//   call:N          comes to its all-reduce N      done:N     that has ended
//   asked           until ddp_stop_requested(), which is marked as read
//   file:PATH       its bytes on stdout            err-file:PATH  on stderr
//   lines:PATH      a numbered line each on stdout and stderr every few milliseconds until there is
//                   such a file
//   scribble:PATH   writes random words to its whole page until there is such a file
//   misuse          tries to shrink, grow and unseal its page, and says which it could
//   close           closes the descriptor of its page
//   lasts:MS        does nothing for that long
//   exec:ARGUMENTS  becomes this program with these, separated by "|"
//   touch:PATH, until:PATH, print:TEXT, err:TEXT, exit:CODE, ignore:SIGNAL, wait   as toy_worker
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ddp/progress.h"
#include "tests/e2e/worker_steps.h"
#include "worker_runtime/counters.h"
#include "worker_runtime/counters_page.h"
#include "worker_runtime/stop_flag.h"

namespace {

using ddp::internal::Counters;
using ddp::internal::GroupCounters;
using ddprun::testing::Env;

constexpr useconds_t kPause_us = 3000;

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void Line(FILE* stream, const std::string& text) {
  std::fprintf(stream, "%s\n", text.c_str());
  std::fflush(stream);
}

Counters& Page() {
  Counters* counters = Counters::OfThisProcess();
  if (counters == nullptr) {
    Line(stderr, "reporting_worker: there is no page");
    std::exit(95);
  }
  return *counters;
}

GroupCounters* group = nullptr;

void OpenGroup(const std::string& name) {
  uint64_t key = 1469598103934665603u;
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 1099511628211u;
  group = Page().OpenGroup(key, name, std::stoi(Env("RANK")), std::stoi(Env("WORLD_SIZE")));
  if (group == nullptr) std::exit(95);
}

int PageDescriptor() { return std::stoi(Env(ddp::internal::kCountersVar)); }

void Scribble(const std::string& until) {
  void* const page = mmap(nullptr, ddp::internal::kCountersBytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED, PageDescriptor(), 0);
  if (page == MAP_FAILED) std::exit(95);
  auto* const words = static_cast<uint64_t*>(page);
  std::mt19937_64 random(static_cast<uint64_t>(getpid()));
  for (int round = 0; !IsThere(until); ++round) {
    // By turns of any bits and of few: small numbers, and moments that may be true.
    for (size_t i = 0; i < ddp::internal::kCounterWords; ++i) {
      const uint64_t bits = random();
      std::atomic_ref<uint64_t>(words[i]).store(bits >> (round % 2 == 0 ? 0 : bits % 64));
    }
    usleep(kPause_us);
  }
}

void Misuse() {
  const int fd = PageDescriptor();
  if (ftruncate(fd, 0) == 0) Line(stdout, "shrunk");
  if (ftruncate(fd, 1 << 20) == 0) Line(stdout, "grown");
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0) Line(stdout, "sealed");
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) {
    Line(stdout, "emptied");
  }
  Line(stdout, "tried");
}

[[noreturn]] void Exec(const std::string& text) {
  std::vector<std::string> words = {"/proc/self/exe"};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('|', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  std::exit(95);
}

void Copy(const std::string& path, FILE* to) {
  FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) std::exit(95);
  std::vector<char> bytes(65536);
  for (size_t got; (got = std::fread(bytes.data(), 1, bytes.size(), file)) > 0;) {
    std::fwrite(bytes.data(), 1, got, to);
  }
  std::fclose(file);
  std::fflush(to);
}

void WriteLines(const std::string& until) {
  for (int number = 0; !IsThere(until); ++number) {
    Line(stdout, "out " + std::to_string(number));
    Line(stderr, "err " + std::to_string(number));
    usleep(kPause_us);
  }
}

void AwaitAsked() {
  const ddp::internal::StopFlag& flag = ddp::internal::StopFlag::OfThisProcess();
  while (!flag.IsRequested()) usleep(kPause_us);
  flag.MarkHeard();
}

void Report(const std::string& until) {
  for (int64_t step = 1; !IsThere(until); ++step) {
    ddp::ReportStep(step, 8);
    usleep(kPause_us);
  }
}

// Those that toy_worker has, too.
void DoUsual(const std::string& name, const std::string& value) {
  if (name == "print") return Line(stdout, value);
  if (name == "err") return Line(stderr, value);
  if (name == "touch") {
    close(open(value.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    return;
  }
  if (name == "until") {
    while (!IsThere(value)) usleep(kPause_us);
    return;
  }
  if (name == "lasts") {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(value)));
    return;
  }
  if (name == "ignore") {
    signal(std::stoi(value), SIG_IGN);
    return;
  }
  if (name == "exit") std::exit(std::stoi(value));
  if (name == "wait") {
    for (;;) pause();
  }
  Line(stderr, "reporting_worker: unknown step " + name);
  std::exit(99);
}

void Do(const std::string& name, const std::string& value) {
  if (name == "step") return ddp::ReportStep(std::stoll(value), 8);
  if (name == "steps") return Report(value);
  if (name == "phase") return ddp::ReportPhase(static_cast<ddp::Phase>(std::stoi(value)));
  if (name == "open") return OpenGroup(value);
  if (name == "call") return group->Called(std::stoull(value), 0, Counters::Clock::now());
  if (name == "done") return group->Done(std::stoull(value), Counters::Clock::now());
  if (name == "asked") return AwaitAsked();
  if (name == "file") return Copy(value, stdout);
  if (name == "err-file") return Copy(value, stderr);
  if (name == "lines") return WriteLines(value);
  if (name == "scribble") return Scribble(value);
  if (name == "misuse") return Misuse();
  if (name == "close") {
    close(PageDescriptor());
    return;
  }
  if (name == "exec") Exec(value);
  DoUsual(name, value);
}

}  // namespace

int main(int argc, char** argv) {
  for (const ddprun::testing::WorkerStep& step : ddprun::testing::WorkerSteps(argc, argv)) {
    Do(step.name, step.value);
  }
  return 0;
}
