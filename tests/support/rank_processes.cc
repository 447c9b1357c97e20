#include "tests/support/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/check.h"
#include "tests/support/store_server.h"

namespace ddprun::testing {
namespace {

int say_fd = -1;

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe MakePipe() {
  int fds[2];
  DDP_CHECK(pipe2(fds, O_CLOEXEC) == 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void Set(const std::string& name, const std::string& value) {
  if (value.empty()) {
    unsetenv(name.c_str());
  } else {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

[[noreturn]] void RunChild(const RankProcesses::Options& options, const RankProcesses::Body& body,
                           int rank, int port_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  uint16_t port = 0;
  if (read(port_fd, &port, sizeof port) != sizeof port) _exit(99);
  const std::string size = std::to_string(options.world_size);
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                          {"LOCAL_RANK", std::to_string(rank)},
                                          {"WORLD_SIZE", size},
                                          {"LOCAL_WORLD_SIZE", size},
                                          {"MASTER_ADDR", "127.0.0.1"},
                                          {"MASTER_PORT", std::to_string(port)},
                                          {"DDPRUN_ROUND", "1"},
                                          {"DDPRUN_EPOCH", "7"}}) {
    Set(name, value);
  }
  for (const auto& [name, value] : options.env) Set(name, value);
  if (options.env_of_rank) {
    for (const auto& [name, value] : options.env_of_rank(rank)) Set(name, value);
  }
  const int code = body(rank);
  fflush(stdout);
  _exit(code);
}

}  // namespace

RankProcesses::RankProcesses(const Options& options, const Body& body) {
  std::vector<UniqueFd> ports;
  fflush(stdout);
  for (int rank = 0; rank < options.world_size; ++rank) {
    Pipe port = MakePipe();
    Pipe lines = MakePipe();
    const pid_t pid = fork();
    DDP_CHECK(pid >= 0);
    if (pid == 0) {
      say_fd = lines.write.get();
      RunChild(options, body, rank, port.read.get());
    }
    ports.push_back(std::move(port.write));
    ranks_.push_back({pid, std::move(lines.read), "", false});
  }
  store_ = StartStoreServer();
  const uint16_t number = store_->port();
  for (UniqueFd& port : ports)
    DDP_CHECK(write(port.get(), &number, sizeof number) == sizeof number);
}

RankProcesses::~RankProcesses() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (ranks_[rank].has_ended) continue;
    Signal(rank, SIGKILL);
    Await(rank);
  }
}

void RankProcesses::Say(const std::string& line) {
  const std::string text = line + "\n";
  DDP_CHECK(write(say_fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

std::string RankProcesses::Hear(int rank) {
  Rank& from = ranks_[static_cast<size_t>(rank)];
  while (true) {
    const size_t end = from.buffer.find('\n');
    if (end != std::string::npos) {
      std::string line = from.buffer.substr(0, end);
      from.buffer.erase(0, end + 1);
      return line;
    }
    pollfd polled{from.lines.get(), POLLIN, 0};
    if (poll(&polled, 1, 60'000) <= 0) return "TIMEOUT";
    char chunk[4096];
    const ssize_t got = read(from.lines.get(), chunk, sizeof chunk);
    if (got <= 0) return "";
    from.buffer.append(chunk, static_cast<size_t>(got));
  }
}

void RankProcesses::Signal(int rank, int signal) { kill(pid(rank), signal); }

int RankProcesses::Await(int rank) {
  int status = 0;
  while (waitpid(pid(rank), &status, 0) < 0) DDP_CHECK(errno == EINTR);
  ranks_[static_cast<size_t>(rank)].has_ended = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ddprun::testing
