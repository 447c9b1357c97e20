#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/process/child_setup.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/process.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using namespace ddprun::testing;

SpawnRequest Toy(std::vector<std::string> verbs) {
  SpawnRequest request;
  request.executable = ToyWorker();
  request.argv = {"toy_worker"};
  for (std::string& verb : verbs) request.argv.push_back(std::move(verb));
  request.env = TestEnvironment();
  return request;
}

// What the toy prints, run to its end under `baseline`.
std::string OutputOf(SpawnRequest request, const ProcessBaseline& baseline = TestBaseline()) {
  CapturePipe output;
  request.stdout_fd = output.write_end();
  const SpawnResult result = Spawn(request, baseline);
  REQUIRE_MESSAGE(result.ok(), result.text);
  const std::string text = output.ReadAll();
  ReapChild(result.pid);
  return text;
}

std::string Hex(SignalBits bits) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(bits));
  return text;
}

SpawnResult SpawnPath(const std::string& path) {
  return Spawn({.executable = path, .argv = {path}, .env = {}}, TestBaseline());
}

TEST_CASE("spawn: what cannot be executed is reported with its errno and exit code") {
  const TempDir temp;
  testing::WriteFile(temp.File("plain"), "#!/bin/sh\n", 0644);
  testing::WriteFile(temp.File("garbage"), "no program\n", 0755);
  testing::WriteFile(temp.File("lost"), "#! /no/such/interpreter -x\n", 0755);
  testing::WriteFile(temp.File("dos"), "#!/bin/sh\r\nexit 0\r\n", 0755);
  const struct {
    std::string path;
    int exit_code;
    std::string reason;
  } rows[] = {
      {temp.File("none"), kExitNotFound, "No such file or directory (ENOENT)"},
      {temp.File("plain") + "/x", kExitNotFound, "Not a directory (ENOTDIR)"},
      {temp.File("plain"), kExitNotExecutable, "Permission denied (EACCES); it has no execute bit"},
      {temp.path().string(), kExitNotExecutable, "Permission denied (EACCES); it is a directory"},
      {temp.File("garbage"), kExitNotExecutable,
       "Exec format error (ENOEXEC); neither a program for this machine nor a script beginning "
       "with #!"},
      {temp.File("lost"), kExitNotExecutable,
       "No such file or directory (ENOENT); the file exists, but its interpreter "
       "\"/no/such/interpreter\" does not"},
      {temp.File("dos"), kExitNotExecutable,
       "No such file or directory (ENOENT); the file exists, but its interpreter \"/bin/sh\\r\" "
       "does not (the file has DOS line ends)"},
  };
  for (const auto& row : rows) {
    const SpawnResult result = SpawnPath(row.path);
    CHECK_FALSE(result.ok());
    CHECK(result.exit_code == row.exit_code);
    CHECK(result.text == "exec \"" + row.path + "\": " + row.reason);
  }
  siginfo_t info{};
  CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0);  // no zombie is left
  CHECK(errno == ECHILD);
}

// What the kernel says of the CPUs of a process that `request` starts.
std::string CpusOf(const std::set<int>& cpus) {
  SpawnRequest request{.executable = "/bin/grep",
                       .argv = {"grep", "Cpus_allowed_list", "/proc/self/status"},
                       .env = TestEnvironment()};
  request.cpus = cpus;
  const std::string line = OutputOf(std::move(request));
  return line.substr(line.find('\t') + 1);
}

TEST_CASE("spawn: a child is bound to its CPUs, and the agent stays as it is") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<size_t>(cpu), &before)) continue;
    CHECK(CpusOf({cpu}) == std::to_string(cpu) + "\n");
    CHECK(CpusOf({cpu, 60000}) == std::to_string(cpu) + "\n");
  }
  CHECK(testing::ReadFile("/proc/self/status") == Contains("Cpus_allowed_list:\t" + CpusOf({})));
  cpu_set_t after;
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("spawn: CPUs that the machine has not are this machine's fault") {
  SpawnRequest request = Toy({"sleep"});
  request.cpus = {60000};
  const SpawnResult result = Spawn(request, TestBaseline());
  CHECK(result.exit_code == kExitMachine);
  CHECK(result.text.find("bind to CPUs (sched_setaffinity): Invalid argument (EINVAL)") == 0);
}

TEST_CASE("spawn: arguments beyond the kernel's limit are this machine's fault") {
  SpawnRequest request = Toy({});
  request.argv.push_back(std::string(4 * 1024 * 1024, 'x'));
  const SpawnResult result = Spawn(request, TestBaseline());
  CHECK(result.exit_code == kExitMachine);
  CHECK(result.text.ends_with(": Argument list too long (E2BIG)"));
}

TEST_CASE("spawn: a machine without a free process or descriptor says which limit it is") {
  // In a child: the limits cannot be raised again.
  const auto text_under = [](auto limit) {
    CapturePipe answer;
    const pid_t pid = fork();
    if (pid == 0) {
      boost::asio::io_context io;
      const boost::asio::steady_timer reactor(io);  // needs descriptors of its own
      limit();
      const SpawnResult result = Spawn(io, Toy({"sleep"}), TestBaseline());
      const bool is_machine = result.exit_code == kExitMachine;
      const std::string text = is_machine ? result.text : "exit code is not kExitMachine";
      _exit(write(answer.write_end(), text.data(), text.size()) < 0);
    }
    const std::string text = answer.ReadAll();
    ReapChild(pid);
    return text;
  };
  CHECK(text_under([] {
          // Root is above the limit on processes.
          if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(1);
          const rlimit none{0, 0};
          setrlimit(RLIMIT_NPROC, &none);
        }) ==
        "clone: Resource temporarily unavailable (EAGAIN); a limit on processes is reached "
        "(ulimit -u, pids.max)");
  CHECK(text_under([] {
          const rlimit none{0, 0};
          setrlimit(RLIMIT_NOFILE, &none);
        }) == "pipe: Too many open files (EMFILE); the limit on open files is reached (ulimit -n)");
}

TEST_CASE("spawn: a worker leads its own session and process group") {
  CapturePipe output;
  SpawnRequest request = Toy({"ids"});
  request.stdout_fd = output.write_end();
  const SpawnResult result = Spawn(request, TestBaseline());
  REQUIRE(result.ok());
  const std::string pid = std::to_string(result.pid);
  CHECK(output.ReadAll() == pid + " " + pid + " " + pid + "\n");
  ReapChild(result.pid);
}

TEST_CASE("spawn: a worker has descriptors 0 to 2 and nothing else") {
  // Also those that the agent's own starter left open without close-on-exec.
  const UniqueFd low(open("/dev/null", O_RDONLY));
  const UniqueFd high(fcntl(low.get(), F_DUPFD, 200));
  CHECK(OutputOf(Toy({"fds"})) == "0 1 2\n");
}

// A file that the toy can tell from others, close-on-exec, at descriptor `number`.
UniqueFd FileAt(int number, const TempDir& temp) {
  UniqueFd opened(open(temp.File("page").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const UniqueFd file(fcntl(opened.get(), F_DUPFD_CLOEXEC, 300));
  opened = UniqueFd();  // it may have that number
  REQUIRE(dup3(file.get(), number, O_CLOEXEC) == number);
  return UniqueFd(number);
}

TEST_CASE("spawn: a worker with a page of counters has its descriptor, too, and nothing else") {
  const TempDir temp;
  const UniqueFd low(open("/dev/null", O_RDONLY));
  const UniqueFd high(fcntl(low.get(), F_DUPFD, 200));
  // Also where the agent has it at the very number, or below those that stay free for a child.
  for (const int number : {150, kCountersFd, 250}) {
    CAPTURE(number);
    const UniqueFd page = FileAt(number, temp);
    SpawnRequest request = Toy({"fds"});
    request.counters_fd = page.get();
    CHECK(OutputOf(std::move(request)) == "0 1 2 198\n");
    CHECK(fcntl(number, F_GETFD) == FD_CLOEXEC);
  }
}

TEST_CASE("spawn: a worker with the round's key has its descriptor, too, and nothing else") {
  const TempDir temp;
  const UniqueFd high(open("/dev/null", O_RDONLY));
  const UniqueFd higher(fcntl(high.get(), F_DUPFD, 210));
  // Also where the agent has the two crosswise, or at the very numbers.
  for (const auto& [page_at, key_at] :
       {std::pair(150, 151), std::pair(198, 199), std::pair(199, 198), std::pair(250, 198)}) {
    CAPTURE(page_at);
    const UniqueFd page = FileAt(page_at, temp);
    const UniqueFd key = FileAt(key_at, temp);
    SpawnRequest request = Toy({"fds"});
    request.round_key_fd = key.get();
    CHECK(OutputOf(request) == "0 1 2 199\n");
    request.counters_fd = page.get();
    CHECK(OutputOf(std::move(request)) == "0 1 2 198 199\n");
    CHECK(fcntl(key_at, F_GETFD) == FD_CLOEXEC);
  }
}

TEST_CASE("spawn: where the limit keeps the key's number away no worker runs without it") {
  const TempDir temp;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  TestBaseline();
  const rlimit low{150, before.rlim_max};
  const UniqueFd key = FileAt(140, temp);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  SpawnRequest request = Toy({"fds"});
  request.round_key_fd = key.get();
  const SpawnResult result = Spawn(request, TestBaseline());
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK_FALSE(result.ok());
  CHECK(result.text == Contains("hand on the round's key as descriptor 199"));
}

TEST_CASE("spawn: page and key are those that were given, whatever number the agent has it at") {
  const TempDir temp;
  for (int number = 0; number <= 6; ++number) {
    CAPTURE(number);
    const UniqueFd saved(fcntl(number, F_DUPFD_CLOEXEC, 20));
    {
      const UniqueFd page = FileAt(number, temp);
      SpawnRequest request = {.executable = "/bin/sh",
                              .argv = {"sh", "-c", "readlink /proc/self/fd/198 /proc/self/fd/199"},
                              .env = TestEnvironment()};
      request.counters_fd = request.round_key_fd = page.get();
      CHECK(OutputOf(std::move(request)) == temp.File("page") + "\n" + temp.File("page") + "\n");
    }
    if (saved.is_open()) dup2(saved.get(), number);
  }
}

TEST_CASE("spawn: where the limit keeps the page's number away the worker runs without") {
  const TempDir temp;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  TestBaseline();
  const rlimit low{150, before.rlim_max};
  const UniqueFd page = FileAt(140, temp);
  CapturePipe output;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  SpawnRequest request = Toy({"fds"});
  request.counters_fd = page.get();
  request.stdout_fd = output.write_end();
  const SpawnResult result = Spawn(request, TestBaseline());
  setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE_MESSAGE(result.ok(), result.text);
  CHECK(output.ReadAll() == "0 1 2\n");
  ReapChild(result.pid);
}

TEST_CASE("spawn: stdio may be given crosswise among 0 to 2") {
  // stdout and stderr swapped: each source is the other's target.
  CapturePipe output;
  const UniqueFd saved(fcntl(2, F_DUPFD_CLOEXEC, 10));
  dup2(output.write_end(), 2);
  SpawnRequest request = Toy({"say", "on stdout", "fds"});
  request.stdout_fd = 2;
  request.stderr_fd = 1;
  const SpawnResult result = Spawn(request, TestBaseline());
  dup2(saved.get(), 2);
  REQUIRE(result.ok());
  CHECK(output.ReadAll() == "on stdout\n0 1 2\n");
  ReapChild(result.pid);
}

TEST_CASE("spawn: given descriptors become stdin, stdout and stderr") {
  CapturePipe input;
  REQUIRE(write(input.write_end(), "hello", 5) == 5);
  SpawnRequest request = Toy({"stdin"});
  // The read end has no accessor: /proc gives another one.
  const std::string path = "/proc/self/fd/" + std::to_string(input.write_end());
  const UniqueFd read_end(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  request.stdin_fd = read_end.get();
  CHECK(OutputOf(request) == "read hello\n");
}

TEST_CASE("spawn: the worker finds the signal state of the agent's start, not the agent's") {
  TestBaseline();  // the agent's mask and SIGPIPE are set now
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  sigaction(SIGUSR2, &handler, nullptr);
  ProcessBaseline baseline;
  baseline.open_files = TestBaseline().open_files;
  SUBCASE("nothing blocked, nothing ignored") {}
  SUBCASE("HUP ignored, as under nohup") { baseline.ignored_signals = BitOf(SIGHUP); }
  SUBCASE("CHLD and a real-time signal ignored, others blocked") {
    baseline.ignored_signals = BitOf(SIGCHLD) | BitOf(40);
    baseline.blocked_signals = BitOf(SIGALRM) | BitOf(64) | BitOf(33);
  }
  const std::string text = OutputOf(Toy({"signals"}), baseline);
  CHECK(text == Contains("SigBlk:" + Hex(baseline.blocked_signals)));
  CHECK(text == Contains("SigIgn:" + Hex(baseline.ignored_signals)));
  signal(SIGUSR2, SIG_DFL);
}

TEST_CASE("spawn: the agent's own signal mask is the same afterwards") {
  TestBaseline();
  const SignalBits before = RecordBaseline().blocked_signals;
  OutputOf(Toy({"say", "x"}));
  CHECK(RecordBaseline().blocked_signals == before);
}

TEST_CASE("spawn: the worker gets the limit on open files of the agent's start") {
  ProcessBaseline baseline = TestBaseline();
  baseline.open_files.rlim_cur = 123;
  CHECK(OutputOf(Toy({"limit"}), baseline) == "123\n");
}

TEST_CASE("spawn: a worker does not inherit the agent's protection from the OOM killer") {
  ProcessBaseline baseline = TestBaseline();
  baseline.oom_scores = {0, 123};  // raising one's score needs no rights
  const std::string text = OutputOf(Toy({"oom"}), baseline);
  CHECK(text == "123\n");
}

TEST_CASE("process baseline: descriptors are reserved as far as the limit allows") {
  const auto table_size = [] {
    return NumberAfter(testing::ReadFile("/proc/self/status"), "FDSize:\t");
  };
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto most = static_cast<int64_t>(limit.rlim_max);
  const int64_t size = table_size();
  if (most < 4 * size) return SkipTest("the hard limit on open files is too low");
  // In a child: neither the limits nor the table could be had back.
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit low{80, static_cast<rlim_t>(3 * size)};
    int failed = setrlimit(RLIMIT_NOFILE, &low) != 0 ? 1 : 0;
    const DescriptorRoom room = ReserveDescriptors(2 * size);
    if (room.limit != 3 * size) failed |= 2;  // the soft limit is raised, the hard one is not
    if (room.taken < 3 || table_size() < 2 * size) failed |= 4;
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (next < 0 || next >= size) failed |= 8;  // reserved is not taken
    if (ReserveDescriptors(int64_t{1} << 40).taken != room.taken + 1) failed |= 16;
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
    }
    const DescriptorRoom full = ReserveDescriptors(100);
    if (full.taken != full.limit) failed |= 32;
    _exit(failed);
  }
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("spawn: the environment is the given one alone") {
  SpawnRequest request = Toy({"env", "HOME", "env", "RANK"});
  request.env = {"RANK=3"};
  CHECK(OutputOf(request) == "<unset>\n3\n");
}

}  // namespace
}  // namespace ddprun::launcher
