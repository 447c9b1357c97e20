// A worker that does what its arguments say, one after the other:
//
//   print:TEXT    a line on stdout            err:TEXT     a line on stderr
//   env:NAME      "NAME=value" on stdout      touch:PATH   make a file
//   until:PATH    wait for a file             wait         wait for ever
//   exit:CODE     end                         die:SIGNAL   end by a signal
//   ignore:SIGNAL ignore it from here on      grandchild   a child in a session of its own waits
//   signal-agent:SIGNAL   send it to the parent
//   error-file:TEXT   write it to TORCHELASTIC_ERROR_FILE
//   error-dir     make a directory in its place
//   timer:TEXT    write it and a newline to TORCHELASTIC_TIMER_FILE
//   block:SIGNAL  for the next two alone
//   await:SIGNAL  until one has come
//   count:SIGNAL  "got it" on stdout for each, until SIGUSR2 comes
//   asked         until DDPRUN_STOP_FILE asks for a stop, which is marked as read
//   poll          "asked" or "not asked" on stdout, read as such
//   progress:DONE/ALL     by ddp::ReportProgress
//   connect       "connected" on stdout once MASTER_ADDR:MASTER_PORT takes a connection
//
// Marks and replacements as in worker_steps.h. It ends with 0 after the last step.
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ddp/progress.h"
#include "tests/e2e/worker_steps.h"

namespace {

using ddprun::testing::Env;

void Line(FILE* stream, const std::string& text) {
  std::fprintf(stream, "%s\n", text.c_str());
  std::fflush(stream);
}

void WaitForFile(const std::string& path) {
  while (access(path.c_str(), F_OK) != 0) usleep(2000);
}

void Write(const std::string& path, const std::string& text) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) std::exit(97);
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

// Bytes 0 to 3 of the file: a stop is asked for; 4 to 7: a rank has read that.
uint32_t* StopFile() {
  const int file = open(Env("DDPRUN_STOP_FILE").c_str(), O_RDWR | O_CLOEXEC);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || page == MAP_FAILED) std::exit(96);
  close(file);
  return static_cast<uint32_t*>(page);
}

bool IsAsked(uint32_t* page) {
  if (std::atomic_ref(page[0]).load() == 0) return false;
  std::atomic_ref(page[1]).store(1);
  return true;
}

sigset_t SetOf(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  return set;
}

// REQUIRES: it has been blocked.
void AwaitSignal(int signal) {
  const sigset_t awaited = SetOf(signal);
  int got = 0;
  if (sigwait(&awaited, &got) != 0) std::exit(96);
}

// REQUIRES: both have been blocked.
void CountSignals(int signal) {
  sigset_t awaited = SetOf(signal);
  sigaddset(&awaited, SIGUSR2);
  for (int got = 0; sigwait(&awaited, &got) == 0 && got != SIGUSR2;) Line(stdout, "got it");
}

void ConnectToMaster() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host = Env("MASTER_ADDR");
  if (getaddrinfo(host.c_str(), Env("MASTER_PORT").c_str(), &hints, &found) != 0) {
    Line(stderr, "toy_worker: cannot resolve " + host);
    std::exit(98);
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_connected = connect(fd, found->ai_addr, found->ai_addrlen) == 0;
  if (!is_connected) std::perror("toy_worker: connect");
  freeaddrinfo(found);
  close(fd);
  if (!is_connected) std::exit(98);
  Line(stdout, "connected");
}

void Do(const std::string& name, const std::string& value) {
  if (name == "print") return Line(stdout, value);
  if (name == "err") return Line(stderr, value);
  if (name == "env") return Line(stdout, value + "=" + Env(value.c_str()));
  if (name == "touch") {
    close(open(value.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    return;
  }
  if (name == "error-file") return Write(Env("TORCHELASTIC_ERROR_FILE"), value);
  if (name == "timer") return Write(Env("TORCHELASTIC_TIMER_FILE"), value + "\n");
  if (name == "error-dir") {
    if (mkdir(Env("TORCHELASTIC_ERROR_FILE").c_str(), 0700) != 0) std::exit(97);
    return;
  }
  if (name == "connect") return ConnectToMaster();
  if (name == "block") {
    const sigset_t blocked = SetOf(std::stoi(value));
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    return;
  }
  if (name == "await") return AwaitSignal(std::stoi(value));
  if (name == "count") return CountSignals(std::stoi(value));
  if (name == "asked") {
    uint32_t* const page = StopFile();
    while (!IsAsked(page)) usleep(2000);
    return;
  }
  if (name == "poll") return Line(stdout, IsAsked(StopFile()) ? "asked" : "not asked");
  if (name == "progress") {
    return ddp::ReportProgress(std::stoll(value), std::stoll(value.substr(value.find('/') + 1)));
  }
  if (name == "until") return WaitForFile(value);
  if (name == "wait") {
    for (;;) pause();
  }
  if (name == "exit") std::exit(std::stoi(value));
  if (name == "die") {
    // A sanitizer catches SIGSEGV and exits with a code of its own.
    signal(std::stoi(value), SIG_DFL);
    raise(std::stoi(value));
    return;
  }
  if (name == "ignore") {
    signal(std::stoi(value), SIG_IGN);
    return;
  }
  if (name == "signal-agent") {
    kill(getppid(), std::stoi(value));
    return;
  }
  if (name == "grandchild") {
    if (fork() == 0) {
      setsid();
      for (;;) pause();
    }
    return;
  }
  Line(stderr, "toy_worker: unknown step " + name);
  std::exit(99);
}

}  // namespace

int main(int argc, char** argv) {
  for (const ddprun::testing::WorkerStep& step : ddprun::testing::WorkerSteps(argc, argv)) {
    Do(step.name, step.value);
  }
  return 0;
}
