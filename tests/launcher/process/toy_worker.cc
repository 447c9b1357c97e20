// What the process tests start: `toy_worker VERB [ARGUMENT...]`, verbs done from left to right.
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void WriteLine(const std::string& text) {
  const std::string line = text + "\n";
  if (write(1, line.data(), line.size()) < 0) _exit(99);
}

// Signals that are said, not died of. They are awaited and have no handler: the thread sanitizer's
// runtime takes a signal that arrives between two calls for later, and at times forgets it.
sigset_t handled_signals;

void Handle(int signal) {
  sigaddset(&handled_signals, signal);
  sigprocmask(SIG_BLOCK, &handled_signals, nullptr);
}

[[noreturn]] void SleepForever() {
  for (;;) {
    int signal = 0;
    if (sigwait(&handled_signals, &signal) == 0) WriteLine("s" + std::to_string(signal));
  }
}

// "0 1 2 ...": the open descriptors, less the one that reads the directory.
std::string OpenDescriptors() {
  std::vector<int> open;
  DIR* directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.' && std::atoi(entry->d_name) != dirfd(directory)) {
      open.push_back(std::atoi(entry->d_name));
    }
  }
  closedir(directory);
  std::sort(open.begin(), open.end());
  std::string text;
  for (int fd : open) text += (text.empty() ? "" : " ") + std::to_string(fd);
  return text;
}

// "blocked=<hex> ignored=<hex>" as the kernel sees them.
std::string SignalState() {
  std::string text;
  std::FILE* file = std::fopen("/proc/self/status", "re");
  char line[256];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    for (const char* field : {"SigBlk:", "SigIgn:", "SigCgt:"}) {
      if (std::strncmp(line, field, std::strlen(field)) != 0) continue;
      text += (text.empty() ? "" : " ") + std::string(field) +
              std::string(line + 8, std::strcspn(line + 8, "\n"));
    }
  }
  std::fclose(file);
  return text;
}

enum class Place { kThisGroup, kOwnGroup, kOwnSession };

// A child that lives on: in this group ("helper"), in a group of its own as a shell's job ("job"),
// or in a session of its own ("daemon").
void LeaveBehind(Place place, bool ignores_term, bool clears_environment) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) _exit(98);
  const pid_t pid = fork();
  if (pid == 0) {
    if (place == Place::kOwnSession) setsid();
    if (place == Place::kOwnGroup) setpgid(0, 0);
    if (ignores_term) signal(SIGTERM, SIG_IGN);
    if (write(ready[1], "", 1) < 0) _exit(98);
    close(ready[0]);
    close(ready[1]);
    char* const bare[] = {nullptr};
    const char* const verbs[] = {"toy_worker", "sleep", nullptr};
    if (clears_environment) execve("/proc/self/exe", const_cast<char* const*>(verbs), bare);
    SleepForever();
  }
  char byte;
  if (read(ready[0], &byte, 1) < 0) _exit(98);
  close(ready[0]);
  close(ready[1]);
  WriteLine("left " + std::to_string(pid));
}

// Forks one process after another, each in a session of its own and deaf to TERM, while being
// killed.
void ForkOn(int count) {
  for (int i = 0; i < count; ++i) {
    if (fork() != 0) continue;
    setsid();
    signal(SIGTERM, SIG_IGN);
    SleepForever();
  }
}

void Run(const std::string& verb, const char*** next) {
  if (verb == "exit") _exit(std::atoi(*(*next)++));
  if (verb == "die") {
    rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int number = std::atoi(*(*next)++);
    signal(number, SIG_DFL);  // a sanitizer handles some
    kill(getpid(), number);
    SleepForever();
  }
  if (verb == "ignore") signal(std::atoi(*(*next)++), SIG_IGN);
  if (verb == "handle") Handle(std::atoi(*(*next)++));
  if (verb == "say") WriteLine(*(*next)++);
  if (verb == "pid") WriteLine("pid " + std::to_string(getpid()));
  if (verb == "fds") WriteLine(OpenDescriptors());
  if (verb == "signals") WriteLine(SignalState());
  if (verb == "ids") {
    WriteLine(std::to_string(getpid()) + " " + std::to_string(getpgid(0)) + " " +
              std::to_string(getsid(0)));
  }
  if (verb == "limit") {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    WriteLine(std::to_string(files.rlim_cur));
  }
  if (verb == "oom") {
    std::FILE* file = std::fopen("/proc/self/oom_score_adj", "re");
    char line[32] = {};
    if (std::fgets(line, sizeof(line), file) == nullptr) _exit(99);
    std::fclose(file);
    WriteLine(std::to_string(std::atoi(line)));
  }
  if (verb == "env") {
    const char* value = std::getenv(*(*next)++);
    WriteLine(value != nullptr ? value : "<unset>");
  }
  if (verb == "stdin") {
    char buffer[256];
    const ssize_t size = read(0, buffer, sizeof(buffer));
    WriteLine("read " + std::string(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))));
  }
  if (verb == "helper") LeaveBehind(Place::kThisGroup, false, false);
  if (verb == "stubborn_helper") LeaveBehind(Place::kThisGroup, true, false);
  if (verb == "bare_helper") LeaveBehind(Place::kThisGroup, true, true);
  if (verb == "bare_job") LeaveBehind(Place::kOwnGroup, true, true);
  if (verb == "daemon") LeaveBehind(Place::kOwnSession, false, false);
  if (verb == "stubborn_daemon") LeaveBehind(Place::kOwnSession, true, false);
  if (verb == "bare_daemon") LeaveBehind(Place::kOwnSession, true, true);
  if (verb == "fork") ForkOn(std::atoi(*(*next)++));
  if (verb == "stop") raise(SIGSTOP);
  if (verb == "sleep") SleepForever();
}

}  // namespace

int main(int, const char** argv) {
  sigemptyset(&handled_signals);
  const char** next = argv + 1;
  while (*next != nullptr) {
    const std::string verb = *next++;
    Run(verb, &next);
  }
  return 0;
}
