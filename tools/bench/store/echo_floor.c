// The floor under a store of one request at a time: epoll, one recv and one send for each request,
// which is not looked at. Answers a connection's first request with 4 bytes, as a PING, and every
// other one with 72, as a GET of store_bench. Prints "port=N pid=N", serves until stdin ends.
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kPong = 4, kValue = 72, kMaxFiles = 1 << 16 };

static char has_greeted[kMaxFiles], request[64 << 10], reply[kValue];

static void Watch(int epoll, int file) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event) != 0) exit(1);
}

static void Accept(int epoll, int listener) {
  const int file = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
  if (file < 0 || file >= kMaxFiles) exit(1);
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  has_greeted[file] = 0;
  Watch(epoll, file);
}

static void Answer(int file) {
  const size_t size = has_greeted[file] ? kValue : kPong;
  has_greeted[file] = 1;
  if (recv(file, request, sizeof request, 0) <= 0 ||
      send(file, reply, size, MSG_NOSIGNAL) != (ssize_t)size) {
    close(file);
  }
}

int main(void) {
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  struct sockaddr_in6 address = {.sin6_family = AF_INET6};
  socklen_t size = sizeof address;
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr*)&address, size) != 0 || listen(listener, 4096) != 0)
    return 1;
  getsockname(listener, (struct sockaddr*)&address, &size);
  printf("port=%d pid=%d\n", ntohs(address.sin6_port), (int)getpid());
  fflush(stdout);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  Watch(epoll, listener);
  Watch(epoll, STDIN_FILENO);
  for (;;) {
    struct epoll_event events[128];
    const int count = epoll_wait(epoll, events, 128, -1);
    for (int i = 0; i < count; ++i) {
      const int file = events[i].data.fd;
      if (file == STDIN_FILENO) return 0;
      if (file == listener) {
        Accept(epoll, listener);
      } else {
        Answer(file);
      }
    }
  }
}
