// A worker of the soak: it says that it starts, adds up numbers with the others for ever, and
// notices what must not be. Its arguments are NAME=VALUE:
//
//   folder=PATH    of the job. `events` gets its lines, `go` there ends all ranks after one step
//   ends=RANK.CODE     that rank ends so after its first step: 1 to 255, or -N for signal N
//   late=1         it ends so only once there is a file `fail`
//
// SIGUSR1 ends it with 41. Ranks of even numbers start a process of another session without
// parents, which lives until it is killed. Lines of `events`, each one write:
//
//   start NODE EPOCH ROUND RESTART RANK WORLD STORE PID     step NODE EPOCH ROUND PID    (every
//   20th) done NODE ROUND RANK                                    broken TEXT
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "ddp/process_group.h"

namespace {

constexpr useconds_t kPause_us = 50'000;
constexpr int kStepsALine = 20;
constexpr int kLeftByPeer = 9;
constexpr int kBroken = 99;

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Who has the file open, by the first 80 bytes of its /proc/PID/stat, this process excepted.
std::string Holders(const std::string& path) {
  std::string text;
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (pid == std::to_string(getpid())) continue;
    for (const auto& file : std::filesystem::directory_iterator(process.path() / "fd", error)) {
      if (std::filesystem::read_symlink(file.path(), error) != path) continue;
      std::string stat;
      std::getline(std::ifstream(process.path() / "stat"), stat);
      absl::StrAppend(&text, " [", stat.substr(0, 80), "]");
    }
  }
  return text;
}

class Worker {
 public:
  explicit Worker(std::map<std::string, std::string> options) : options_(std::move(options)) {}

  int Run() {
    HoldPlace();
    Say(absl::StrCat("start ", node_, " ", round_, " ", Env("TORCHELASTIC_RESTART_COUNT"), " ",
                     Env("RANK"), " ", Env("WORLD_SIZE"), " ", Env("MASTER_ADDR"), ":",
                     Env("MASTER_PORT"), " ", getpid()));
    if (std::stoi(Env("RANK")) % 2 == 0) StartHelper();
    ddp::ProcessGroupOptions how;
    how.timeout = std::chrono::seconds(30);
    // By turns over shared memory and over sockets.
    if (std::stoi(Env("DDPRUN_ROUND")) % 2 == 1) how.backend = ddp::Backend::kTcp;
    auto group = ddp::ProcessGroup::FromEnv(how);
    if (!group.ok()) return EndBecause(group.status());
    for (int step = 1;; ++step) {
      const absl::StatusOr<bool> is_over = Step(**group);
      if (!is_over.ok()) return EndBecause(is_over.status());
      if (*is_over) break;
      if (step % kStepsALine == 1) {
        Say(absl::StrCat("step ", node_, " ", round_, " ", getpid()));
        std::printf("rank %s of round %s has made step %d\n", Env("RANK").c_str(), round_.c_str(),
                    step);
        std::fflush(stdout);
      }
      FailAsAsked(**group);
      usleep(kPause_us);
    }
    if (const absl::Status end = (*group)->Shutdown(); !end.ok()) return EndBecause(end);
    Say(absl::StrCat("done ", node_, " ", Env("DDPRUN_ROUND"), " ", Env("RANK")));
    return 0;
  }

 private:
  std::string Folder(const std::string& name) const { return options_.at("folder") + "/" + name; }

  void Say(const std::string& line) const {
    const std::string text = line + "\n";
    if (write(events_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      std::perror("soak_worker: write events");
      std::_Exit(kBroken);
    }
  }

  // No two workers have one place on a node at a time, whatever their rounds are.
  void HoldPlace() {
    events_ = open(Folder("events").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    const std::string place = absl::StrCat("place.", node_, ".", Env("LOCAL_RANK"));
    const int lock = open(Folder(place).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (events_ < 0 || lock < 0) {
      std::perror("soak_worker: open");
      std::_Exit(kBroken);
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) return;
    Say(absl::StrCat("broken S5: a worker of another round, or its helper, lives at ", place,
                     " as round ", round_, " starts there:", Holders(Folder(place))));
  }

  // It keeps the place, as it must end with its worker.
  static void StartHelper() {
    if (fork() != 0) return;
    setsid();
    if (fork() != 0) _exit(0);
    signal(SIGUSR1, SIG_IGN);
    for (;;) pause();
  }

  // All ranks are of one round, each once; whether `go` has been seen by any.
  absl::StatusOr<bool> Step(ddp::ProcessGroup& group) {
    const int64_t round = std::stoll(Env("DDPRUN_ROUND"));
    std::array<int64_t, 4> sums = {1, group.rank(), round, IsThere(Folder("go")) ? 1 : 0};
    const absl::Status status =
        group.communicator()
            .AllReduce(sums.data(), sums.size(), ddp::DType::kInt64, ddp::ReduceOp::kSum, {})
            ->Wait();
    if (!status.ok()) return status;
    const int64_t size = group.world_size();
    if (sums[0] != size || sums[1] != size * (size - 1) / 2 || sums[2] != size * round) {
      Say(absl::StrCat("broken S1: round ", round, " of ", size, " ranks adds up to ", sums[0],
                       " ranks, ", sums[1], " of their numbers and ", sums[2], " of rounds"));
    }
    return sums[3] > 0;
  }

  void FailAsAsked(const ddp::ProcessGroup& group) const {
    const auto ends = options_.find("ends");
    if (ends == options_.end() || std::stoi(ends->second) != group.rank()) return;
    if (options_.count("late") > 0 && !IsThere(Folder("fail"))) return;
    const int code = std::stoi(ends->second.substr(ends->second.find('.') + 1));
    if (code > 0) std::_Exit(code);
    signal(-code, SIG_DFL);
    raise(-code);
  }

  static int EndBecause(const absl::Status& status) {
    std::fprintf(stderr, "soak_worker: %s\n", std::string(status.message()).c_str());
    return kLeftByPeer;
  }

  const std::map<std::string, std::string> options_;
  const std::string node_ = Env("SOAK_NODE");
  const std::string round_ = Env("DDPRUN_EPOCH") + " " + Env("DDPRUN_ROUND");
  int events_ = -1;
};

}  // namespace

int main(int argc, char** argv) {
  signal(SIGUSR1, [](int) { _exit(41); });
  std::map<std::string, std::string> options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      std::fprintf(stderr, "soak_worker: expected NAME=VALUE, got '%s'\n", argv[i]);
      return 2;
    }
    options[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return Worker(std::move(options)).Run();
}
