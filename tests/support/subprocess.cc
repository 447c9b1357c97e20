#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "rendezvous/base/check.h"

extern char** environ;

namespace ddprun::testing {
namespace {

std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : changes) merged[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : merged) {
    if (!value.empty()) environment.push_back(name + "=" + value);
  }
  return environment;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Puts `file` in the place of /etc/hosts for this process and what it starts, and for nobody else.
bool UseHostsFile(const char* file) {
  return unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount(file, "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
}

struct ChildSetup {
  char* const* argv;
  char* const* env;
  const char* working_dir;
  const char* hosts_file;
  int netns;
  int out;
  int err;
};

// The child side: only calls that are safe after fork in a threaded program.
[[noreturn]] void Exec(const ChildSetup& setup) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(setup.out, 1);
  dup2(setup.err, 2);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (*setup.working_dir != '\0' && chdir(setup.working_dir) != 0) _exit(250);
  if (setup.netns >= 0 && setns(setup.netns, CLONE_NEWNET) != 0) _exit(251);
  if (*setup.hosts_file != '\0' && !UseHostsFile(setup.hosts_file)) _exit(253);
  execve(setup.argv[0], setup.argv, setup.env);
  _exit(252);
}

}  // namespace

Subprocess::Subprocess(std::vector<std::string> argv, Options options) : argv_(std::move(argv)) {
  const std::vector<std::string> environment = MergedEnvironment(options.env);
  const std::vector<char*> argv_pointers = Pointers(argv_);
  const std::vector<char*> env_pointers = Pointers(environment);
  int netns = -1;
  if (!options.netns.empty()) {
    netns = open(("/run/netns/" + options.netns).c_str(), O_RDONLY | O_CLOEXEC);
    DDP_CHECK(netns >= 0);
  }
  int out[2];
  int err[2];
  DDP_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
  DDP_CHECK(pipe2(stop_pipe_, O_CLOEXEC) == 0);
  pid_ = fork();
  DDP_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    Exec({.argv = argv_pointers.data(),
          .env = env_pointers.data(),
          .working_dir = options.working_dir.c_str(),
          .hosts_file = options.hosts_file.c_str(),
          .netns = netns,
          .out = out[1],
          .err = err[1]});
  }
  close(out[1]);
  close(err[1]);
  if (netns >= 0) close(netns);
  out_.fd = out[0];
  err_.fd = err[0];
  if (!options.is_stalled && !options.is_late) BeginReading();
}

void Subprocess::BeginReading() {
  reader_ = std::thread([this] { Read(); });
}

Subprocess::~Subprocess() {
  if (!exit_code_) {
    kill(pid_, SIGKILL);
    Wait();
  }
  close(stop_pipe_[1]);
  if (reader_.joinable()) reader_.join();
  close(stop_pipe_[0]);
  close(out_.fd);
  close(err_.fd);
}

void Subprocess::Read() {
  std::vector<char> chunk(65536);
  pollfd fds[3] = {{out_.fd, POLLIN, 0}, {err_.fd, POLLIN, 0}, {stop_pipe_[0], POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (poll(fds, 3, -1) < 0 && errno != EINTR) return;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || (fds[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      const ssize_t count = read(fds[i].fd, chunk.data(), chunk.size());
      const std::lock_guard lock(mutex_);
      Stream& stream = i == 0 ? out_ : err_;
      if (count > 0) {
        stream.text.append(chunk.data(), static_cast<size_t>(count));
      } else if (count == 0 || errno != EINTR) {
        stream.is_closed = true;
        fds[i].fd = -1;
      }
      changed_.notify_all();
    }
    if (fds[2].revents != 0) return;
  }
}

void Subprocess::Signal(int signal) { DDP_CHECK(kill(pid_, signal) == 0); }

std::optional<int> Subprocess::Wait(std::chrono::milliseconds patience) {
  Eventually(
      [&] {
        if (exit_code_) return true;
        int status = 0;
        const pid_t done = waitpid(pid_, &status, WNOHANG);
        if (done != pid_) return false;
        exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return true;
      },
      patience);
  if (exit_code_ && reader_.joinable()) {
    // What it wrote last is still in the pipes; a descendant that holds them is not waited for.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(2),
                      [&] { return out_.is_closed && err_.is_closed; });
  }
  return exit_code_;
}

bool Subprocess::WaitFor(const Stream& stream, const std::string& text,
                         std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return stream.text.find(text) != std::string::npos; };
  changed_.wait_for(lock, patience, [&] { return is_there() || stream.is_closed; });
  return is_there();
}

bool Subprocess::WaitForOut(const std::string& text, std::chrono::milliseconds patience) {
  return WaitFor(out_, text, patience);
}

bool Subprocess::WaitForErr(const std::string& text, std::chrono::milliseconds patience) {
  return WaitFor(err_, text, patience);
}

std::string Subprocess::out() const {
  const std::lock_guard lock(mutex_);
  return out_.text;
}

std::string Subprocess::err() const {
  const std::lock_guard lock(mutex_);
  return err_.text;
}

std::string Subprocess::Describe() const {
  std::string text = "\n--- command:";
  for (const std::string& word : argv_) text += " " + word;
  text += "\n--- pid " + std::to_string(pid_);
  text += exit_code_ ? ", exit code " + std::to_string(*exit_code_) : ", still running";
  return text + "\n--- stdout:\n" + out() + "\n--- stderr:\n" + err() + "\n---";
}

std::vector<int> ProcessesWithEnv(const std::string& name, const std::string& value) {
  std::vector<int> pids;
  const std::string wanted = name + "=" + value;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::stringstream environment(ReadFile(entry.path() / "environ"));
    for (std::string variable; std::getline(environment, variable, '\0');) {
      if (variable == wanted) {
        pids.push_back(std::stoi(pid));
        break;
      }
    }
  }
  return pids;
}

std::string Runfile(const std::string& path) {
  const char* root = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  DDP_CHECK(root != nullptr && workspace != nullptr);
  return std::string(root) + "/" + workspace + "/" + path;
}

}  // namespace ddprun::testing
