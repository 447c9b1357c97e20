#include "tools/bench/store/client.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace ddprun::bench {

void Fail(const std::string& what) {
  std::fprintf(stderr, "store benchmark: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

std::string Encode(const rendezvous::StoreCommand& command) {
  std::string bytes;
  rendezvous::AppendRequest(command, &bytes);
  return bytes;
}

UniqueFd Connect(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) Fail("resolve " + host);
  UniqueFd fd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || connect(fd.get(), list->ai_addr, list->ai_addrlen) != 0) {
    Fail("connect to " + host + ":" + port);
  }
  freeaddrinfo(list);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

void SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) Fail("send");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

int64_t CpuTime(int pid) {
  if (pid <= 0) return 0;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* folder = opendir(tasks.c_str());
  if (folder == nullptr) Fail("open " + tasks);
  int64_t total = 0;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    int64_t on_cpu = 0;
    std::ifstream(tasks + "/" + entry->d_name + "/schedstat") >> on_cpu;
    total += on_cpu;
  }
  closedir(folder);
  return total;
}

void RaiseDescriptorLimit() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

void ParseArguments(int argc, char** argv, const std::map<std::string, std::string*>& texts,
                    const std::map<std::string, int*>& numbers, const char* usage) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
    } else if (const auto number = numbers.find(name); number != numbers.end()) {
      *number->second = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "usage: %s\n", usage);
      std::exit(2);
    }
  }
}

}  // namespace ddprun::bench
