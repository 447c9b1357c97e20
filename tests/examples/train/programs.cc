#include "tests/examples/train/programs.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/base/check.h"
#include "tests/support/files.h"

namespace ddprun::testing {
namespace {

constexpr int kDeadlineMs = 60'000;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace

Program::Program(const std::vector<std::string>& args,
                 const std::vector<std::string>& environment) {
  const std::vector<char*> argv = Pointers(args), envp = Pointers(environment);
  const UniqueFd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  const UniqueFd out(::open(output_.File("out").c_str(), flags, 0600));
  const UniqueFd err(::open(output_.File("err").c_str(), flags, 0600));
  DDP_CHECK(in.is_open() && out.is_open() && err.is_open());
  pid_ = ::fork();
  DDP_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(in.get(), 0);
    ::dup2(out.get(), 1);
    ::dup2(err.get(), 2);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  pidfd_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  DDP_CHECK(pidfd_.is_open());
}

Program::~Program() {
  if (pid_ < 0) return;
  Kill();
  Wait();
}

void Program::Kill() { DDP_CHECK(pid_ > 0 && ::kill(pid_, SIGKILL) == 0); }

int Program::Wait() {
  if (pid_ < 0) return exit_code_;
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  while ((ready = ::poll(&ended, 1, kDeadlineMs)) < 0) DDP_CHECK(errno == EINTR);
  DDP_CHECK(ready == 1);
  int status = 0;
  DDP_CHECK(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

std::string Program::Stdout() const { return ReadFile(output_.File("out")); }
std::string Program::Stderr() const { return ReadFile(output_.File("err")); }

Job::Job(int world_size, const std::vector<std::string>& args) {
  auto store = rendezvous::StoreServer::Start({});
  DDP_CHECK(store.ok());
  store_ = *std::move(store);
  const std::string world = std::to_string(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string number = std::to_string(rank);
    ranks_.push_back(std::make_unique<Program>(
        args,
        std::vector<std::string>{"RANK=" + number, "WORLD_SIZE=" + world, "LOCAL_RANK=" + number,
                                 "LOCAL_WORLD_SIZE=" + world, "MASTER_ADDR=127.0.0.1",
                                 "MASTER_PORT=" + std::to_string(store_->port()), "DDPRUN_ROUND=1",
                                 "DDPRUN_EPOCH=1", "TORCHELASTIC_RESTART_COUNT=0"}));
  }
}

std::vector<int> Job::Wait() {
  std::vector<int> codes;
  for (const std::unique_ptr<Program>& rank : ranks_) codes.push_back(rank->Wait());
  return codes;
}

std::string Job::Stderr() const {
  std::string all;
  for (const std::unique_ptr<Program>& rank : ranks_) all += rank->Stderr();
  return all;
}

}  // namespace ddprun::testing
