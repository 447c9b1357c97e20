#include "launcher/control/control_socket.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/launcher/control/short_dir.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"

namespace ddprun::launcher {
namespace {

using ddprun::testing::InChild;
using ddprun::testing::SkipTest;
using ddprun::testing::WriteFile;
using std::chrono::seconds;
using testing::ShortDir;

void UseDirectory(const std::string& path) { setenv("DDPRUN_CONTROL_DIR", path.c_str(), 1); }

std::string WhyNot() {
  const absl::StatusOr<ControlSocket> made = ListenForControl();
  return made.ok() ? "made " + made->path : std::string(made.status().message());
}

// A socket file of `path`; listening only on demand.
UniqueFd BindUnix(const std::string& path, bool is_listening) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  if (is_listening) REQUIRE(listen(fd.get(), 8) == 0);
  return fd;
}

TEST_CASE("control socket: the directory is made for this user alone") {
  const ShortDir dir;
  UseDirectory(dir.File("control"));
  const absl::StatusOr<ControlSocket> made = ListenForControl();
  REQUIRE(made.ok());
  CHECK(made->path.rfind(dir.File("control") + "/" + std::to_string(getpid()) + "-", 0) == 0);
  struct stat info {};
  REQUIRE(stat(dir.File("control").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  CHECK(ConnectToControl(made->path, seconds(5)).ok());
  // Nothing but the socket is left there.
  int entries = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(dir.File("control"))) {
    ++entries;
  }
  CHECK(entries == 1);
}

TEST_CASE("control socket: a process may have several, each under a name of its own") {
  const ShortDir dir;
  UseDirectory(dir.File("control"));
  const absl::StatusOr<ControlSocket> one = ListenForControl(), two = ListenForControl();
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  CHECK(one->path != two->path);
  CHECK(FindControlSockets().size() == 2);
  RemoveControlSocket(one->path);
  CHECK(FindControlSockets() == std::vector<std::string>{two->path});
}

TEST_CASE("control socket: a directory that others can enter, or that is none, is not used") {
  const ShortDir dir;
  const std::string open = dir.File("open");
  REQUIRE(mkdir(open.c_str(), 0755) == 0);
  UseDirectory(open);
  CHECK(WhyNot() ==
        open +
            " is open to other users; chmod 700 it, if it is for nothing else, or name another "
            "with DDPRUN_CONTROL_DIR");
  REQUIRE(chmod(open.c_str(), 0701) == 0);
  CHECK(WhyNot() == Contains("is open to other users"));
  REQUIRE(chmod(open.c_str(), 0700) == 0);
  CHECK(WhyNot() == Contains("made "));

  const std::string link = dir.File("link");
  REQUIRE(symlink(open.c_str(), link.c_str()) == 0);
  UseDirectory(link);
  CHECK(WhyNot() == link + " is no directory; name one with DDPRUN_CONTROL_DIR");
  UseDirectory(WriteFile(dir.File("file"), "x"));
  CHECK(WhyNot() == Contains("is no directory"));
  UseDirectory(dir.File("no/such"));
  CHECK(WhyNot() == Contains("make " + dir.File("no/such")));
  UseDirectory(dir.File(std::string(90, 'd')));
  CHECK(WhyNot() == Contains("too long a name"));
}

TEST_CASE("control socket: another user's directory is not used, and not looked into") {
  if (geteuid() != 0) return SkipTest("only root can make another user's directory");
  const ShortDir dir;
  const std::string theirs = dir.File("theirs");
  REQUIRE(mkdir(theirs.c_str(), 0700) == 0);
  REQUIRE(chown(theirs.c_str(), 65534, 65534) == 0);
  UseDirectory(theirs);
  CHECK(WhyNot() == theirs + " belongs to another user; name another with DDPRUN_CONTROL_DIR");
  const UniqueFd socket = BindUnix(theirs + "/1.sock", true);
  CHECK(FindControlSockets().empty());
}

TEST_CASE("control socket: without a name of its own, /tmp and then the user's runtime directory") {
  unsetenv("DDPRUN_CONTROL_DIR");
  const std::string name = "/ddprun-" + std::to_string(geteuid());
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  CHECK(ControlDirectories() == std::vector<std::string>{"/tmp" + name, "/run/user/7" + name});
  setenv("XDG_RUNTIME_DIR", "relative", 1);
  CHECK(ControlDirectories() == std::vector<std::string>{"/tmp" + name});
  unsetenv("XDG_RUNTIME_DIR");
  setenv("DDPRUN_CONTROL_DIR", "", 1);
  CHECK(ControlDirectories() == std::vector<std::string>{"/tmp" + name});
  CHECK(WhereJobsAreSought() == "on this machine");
  setenv("DDPRUN_CONTROL_DIR", "/a\nb", 1);
  CHECK(WhereJobsAreSought() == "on this machine (DDPRUN_CONTROL_DIR is /a\\nb)");
}

TEST_CASE("control socket: those of dead agents are removed, other files left alone") {
  const ShortDir dir;
  const std::string control = dir.File("control");
  UseDirectory(control);
  CHECK(FindControlSockets().empty());
  REQUIRE(mkdir(control.c_str(), 0700) == 0);
  { const UniqueFd dead = BindUnix(control + "/1-dead.sock", true); }
  const UniqueFd alive = BindUnix(control + "/3-alive.sock", true);
  const UniqueFd first = BindUnix(control + "/2-alive.sock", true);
  // An agent that is about to listen.
  const UniqueFd unready = BindUnix(control + "/4-unready.sock~", false);
  WriteFile(control + "/file.sock", "x");
  CHECK(FindControlSockets() ==
        std::vector<std::string>{control + "/2-alive.sock", control + "/3-alive.sock"});
  CHECK(!std::filesystem::exists(control + "/1-dead.sock"));
  CHECK(std::filesystem::exists(control + "/4-unready.sock~"));
}

TEST_CASE("control socket: one that nobody accepts from is found, and a connect ends in time") {
  const ShortDir dir;
  UseDirectory(dir.path());
  REQUIRE(chmod(dir.path().c_str(), 0700) == 0);
  const std::string path = dir.File("1.sock");
  const UniqueFd fd = BindUnix(path, true);
  std::vector<UniqueFd> waiting;
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    // lower bound: once there is no room, none comes
    absl::StatusOr<UniqueFd> made = ConnectToControl(path, std::chrono::milliseconds(50));
    status = made.status();
    if (made.ok()) waiting.push_back(*std::move(made));
  }
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(status.message() == Contains("its ddprun accepts nobody"));
  CHECK(FindControlSockets() == std::vector<std::string>{path});
}

TEST_CASE("control socket: errors of a connect name the socket") {
  const ShortDir dir;
  const auto why = [](const std::string& path) {
    return std::string(ConnectToControl(path, seconds(1)).status().message());
  };
  CHECK(why(dir.File("none")) == Contains("connect to " + dir.File("none")));
  CHECK(why("/tmp/" + std::string(200, 'x')) == Contains("too long a name"));
  CHECK(why("/tmp/a\nb") == Contains("connect to /tmp/a\\nb"));
}

TEST_CASE("control socket: another user's process is no peer, on either end") {
  if (geteuid() != 0) return SkipTest("only root can become another user");
  const ShortDir dir;
  REQUIRE(chmod(dir.path().c_str(), 0777) == 0);
  const std::string path = dir.File("1.sock");
  const UniqueFd fd = BindUnix(path, true);
  REQUIRE(chmod(path.c_str(), 0777) == 0);
  // A stranger that connects: the file's mode lets it in, its user does not. It in turn may talk to
  // root.
  const std::string stranger = InChild({}, [&]() -> std::string {
    if (setgid(65534) != 0 || setuid(65534) != 0) return "setuid failed";
    const absl::StatusOr<UniqueFd> made = ConnectToControl(path, seconds(5));
    if (!made.ok()) return std::string(made.status().message());
    return IsPeerAllowed(made->get()) ? "root is allowed" : "root is not allowed";
  });
  CHECK(stranger == "root is allowed");
  pollfd polled{fd.get(), POLLIN, 0};
  REQUIRE(poll(&polled, 1, 20'000) == 1);
  const UniqueFd accepted(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(accepted.is_open());
  CHECK(!IsPeerAllowed(accepted.get()));

  // A stranger that listens.
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const std::string theirs = dir.File("2.sock");
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    const UniqueFd listening = BindUnix(theirs, true);
    static_cast<void>(write(ready[1], "x", 1));
    pause();
  }
  close(ready[1]);
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  const absl::Status status = ConnectToControl(theirs, seconds(5)).status();
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  CHECK(absl::IsPermissionDenied(status));
  CHECK(status.message() == theirs + " is another user's socket");
}

TEST_CASE("control socket: no peer is allowed where there is no Unix socket") {
  CHECK(!IsPeerAllowed(-1));
  const UniqueFd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  CHECK(!IsPeerAllowed(udp.get()));
}

TEST_CASE("control socket: what an agent left that was killed before it listened goes, when old") {
  const ShortDir dir;
  UseDirectory(dir.path());
  const std::string fresh = WriteFile(dir.File("7-00000001.sock~"), "");
  const std::string old = WriteFile(dir.File("7-00000002.sock~"), "");
  const timespec long_ago[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  REQUIRE(utimensat(AT_FDCWD, old.c_str(), long_ago, 0) == 0);
  CHECK(FindControlSockets().empty());
  CHECK(access(fresh.c_str(), F_OK) == 0);
  CHECK(access(old.c_str(), F_OK) != 0);
}

}  // namespace
}  // namespace ddprun::launcher
