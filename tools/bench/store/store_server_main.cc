// Our store by itself, for the benchmark: prints "port=N pid=N", serves until stdin ends.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "rendezvous/store/store_server.h"

int main(int argc, char** argv) {
  using ddprun::rendezvous::StoreServer;
  StoreServer::Options options;
  options.bind = StoreServer::Bind::kAll;  // As PyTorch's.
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--port=")) {
      options.port = static_cast<uint16_t>(std::atoi(argument.c_str() + 7));
    } else {
      std::fprintf(stderr, "usage: store_server_main [--port=N]\n");
      return 2;
    }
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const auto server = StoreServer::Start(options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("port=%d pid=%d\n", (*server)->port(), getpid());
  std::fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  return 0;
}
