#include "tests/launcher/process/process_testing.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "launcher/process/process.h"
#include "launcher/process/start_sequence.h"
#include "rendezvous/base/check.h"
#include "tests/support/files.h"

extern char** environ;

namespace ddprun::testing {
namespace {

using std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(30);

}  // namespace

const launcher::ProcessBaseline& TestBaseline() {
  static const launcher::ProcessBaseline baseline = [] {
    launcher::ProcessBaseline recorded = launcher::RecordBaseline();
    DDP_CHECK(launcher::PrepareAgentProcess(recorded).ok());
    return recorded;
  }();
  return baseline;
}

SpawnResult Spawn(boost::asio::io_context& io, launcher::SpawnRequest request,
                  const launcher::ProcessBaseline& baseline) {
  SpawnResult result;
  launcher::StartSequence sequence(
      io, {.baseline = baseline},
      {.on_started = [&](size_t, pid_t pid) { result.pid = pid; },
       .on_failed =
           [&](size_t, const launcher::SpawnFailure& why) {
             if (result.ok()) launcher::ReapChild(result.pid);
             result = {.pid = -1, .exit_code = why.exit_code, .text = why.text};
           },
       .on_slow = [](const std::string&) {}});
  sequence.Begin({std::move(request)});
  DDP_CHECK(RunUntil(io, [&] { return result.pid != 0 && !sequence.IsOnItsWay(result.pid); }));
  return result;
}

SpawnResult Spawn(launcher::SpawnRequest request, const launcher::ProcessBaseline& baseline) {
  boost::asio::io_context io;
  return Spawn(io, std::move(request), baseline);
}

std::string ToyWorker() {
  const char* sources = std::getenv("TEST_SRCDIR");
  DDP_CHECK(sources != nullptr);
  return std::string(sources) + "/ddprun/tests/launcher/process/toy_worker";
}

std::vector<std::string> TestEnvironment(std::vector<std::string> extra) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  for (std::string& entry : extra) all.push_back(std::move(entry));
  return all;
}

bool RunUntil(boost::asio::io_context& io, const std::function<bool()>& is_done) {
  const auto give_up = steady_clock::now() + kPatience;
  while (!is_done()) {
    if (steady_clock::now() >= give_up) return false;
    io.restart();
    io.run_one_for(std::chrono::milliseconds(20));  // no limit: between looks
  }
  return true;
}

bool WaitUntil(const std::function<bool()>& is_done) {
  const auto give_up = steady_clock::now() + kPatience;
  while (!is_done()) {
    if (steady_clock::now() >= give_up) return false;
    poll(nullptr, 0, 2);
  }
  return true;
}

CapturePipe::CapturePipe() {
  int ends[2];
  DDP_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  read_end_.Reset(ends[0]);
  write_end_.Reset(ends[1]);
}

bool CapturePipe::ReadMore() {
  pollfd ready{read_end_.get(), POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) != 1) {
    return false;
  }
  char buffer[4096];
  const ssize_t size = read(read_end_.get(), buffer, sizeof(buffer));
  if (size <= 0) return false;
  seen_.append(buffer, static_cast<size_t>(size));
  return true;
}

std::string CapturePipe::ReadUntil(const std::string& text, size_t from) {
  while (seen_.find(text, from) == std::string::npos && ReadMore()) {
  }
  return seen_;
}

std::string CapturePipe::ReadAll() {
  CloseWriteEnd();
  while (ReadMore()) {
  }
  return seen_;
}

char StateOf(pid_t pid) {
  const std::string line = testing::ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = line.rfind(')');
  return end == std::string::npos ? '-' : line[end + 2];
}

bool IsRunning(pid_t pid) {
  const char state = StateOf(pid);
  return state != '-' && state != 'Z' && state != 'X';
}

pid_t NumberAfter(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + word.size());
}

}  // namespace ddprun::testing
