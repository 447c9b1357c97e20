#include "launcher/report/ending_workers.h"

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

// As in proc(5), with zeros for fields 10 to 51.
std::string Stat(const std::string& name, int flags, int status) {
  std::string text = "7 (" + name + ") S 1 7 7 0 -1 " + std::to_string(flags);
  for (int field = 10; field <= 51; ++field) text += " 0";
  return text + " " + std::to_string(status) + "\n";
}

TEST_CASE("ending workers: the kernel's flags tell of an exit, whatever the program's name") {
  CHECK_FALSE(IsExiting(Stat("python", 4194304, 0)));
  CHECK(IsExiting(Stat("a) b (c)", 4228108, 0x300)));
  CHECK(IsExiting(Stat("python", 4228108, SIGKILL)));
  for (const char* text : {"", "7", "7 (python", "7 (python)", "7 (python) S 1 7 7 0 -1 4228108"}) {
    CHECK_FALSE(IsExiting(text));
  }
}

TEST_CASE(
    "ending workers: a process that exits by an abort tells of no cause, with its core or not") {
  CHECK_FALSE(IsExiting(Stat("python", 4228108, SIGABRT)));
  CHECK_FALSE(IsExiting(Stat("python", 4228108, SIGABRT | 0x80)));
}

// A /proc and the output of three workers that run.
struct Machine {
  Machine() {
    for (int pid : {100, 101, 102}) {
      const std::string fds = Folder(pid) + "/fd";
      std::filesystem::create_directories(fds);
      std::filesystem::create_symlink("/dev/null", fds + "/0");
      std::filesystem::create_symlink("socket:[4711]", fds + "/5");
      SetFlags(pid, 4194304);
      workers.push_back({pid - 100, pid, dir.File(std::to_string(pid) + ".json")});
    }
  }
  std::string Folder(int pid) const { return dir.File(std::to_string(pid)); }
  void SetFlags(int pid, int flags) const {
    std::ofstream(Folder(pid) + "/stat") << Stat("python", flags, 0);
  }
  void CloseSocketOf(int pid) const { std::filesystem::remove(Folder(pid) + "/fd/5"); }
  std::set<int> Ending() {
    return EndingWorkers(
        workers, [this](int rank, size_t, Duration) { return said[rank]; }, dir.path().string());
  }

  testing::TempDir dir;
  std::vector<LivingWorker> workers;
  std::map<int, std::string> said;
};

TEST_CASE("ending workers: none of those that run") {
  Machine machine;
  machine.said[0] = "step 5\n";
  CHECK(machine.Ending().empty());
}

TEST_CASE("ending workers: one with a traceback, in its exit, or with an error file") {
  Machine machine;
  machine.said[1] = "step 5\nTraceback (most recent call last):\n  File \"a.py\"\nValueError: 5\n";
  CHECK(machine.Ending() == std::set<int>{1});
  machine.SetFlags(102, 4194304 | 4);
  CHECK(machine.Ending() == std::set<int>{1, 2});
  std::ofstream(machine.workers[0].error_file) << R"({"message": "bad batch", "timestamp": 5})";
  CHECK(machine.Ending() == std::set<int>{0, 1, 2});
}

TEST_CASE("ending workers: one that says that a peer left is none") {
  Machine machine;
  const std::string& path = machine.workers[0].error_file;
  const std::string note =
      R"({"message": {"message": "rank 2 left: sum failed", "extraInfo": {"left_peer": 2}}})";
  SUBCASE("in its error file") { std::ofstream(path.c_str()) << note; }
  SUBCASE("beside it, as @record has written the error file anew") {
    std::ofstream(path.c_str()) << R"({"message": "MyError: sum failed", "timestamp": 5})";
    std::ofstream(path + ".left_peer") << note;
  }
  CHECK(machine.Ending().empty());
  std::ofstream(path.c_str()) << R"({"message": "ValueError: boom", "timestamp": 6})";
  CHECK(machine.Ending() == std::set<int>{0});
}

TEST_CASE("ending workers: one that tells of a lost connection is none, in its exit or not") {
  Machine machine;
  std::ofstream(machine.workers[0].error_file)
      << R"({"message": "RuntimeError: Connection closed by peer", "timestamp": 5})";
  machine.said[1] = "Traceback (most recent call last):\nBrokenPipeError: 32\n";
  machine.CloseSocketOf(101);
  CHECK(machine.Ending().empty());
  for (const int pid : {100, 101}) machine.SetFlags(pid, 4194304 | 4);
  CHECK(machine.Ending().empty());
}

TEST_CASE("ending workers: who says that it lost a peer, and who does not") {
  const testing::TempDir dir;
  const std::string path = dir.File("error.json");
  const std::string lost = "Traceback (most recent call last):\nRuntimeError: Broken pipe\n";
  const std::string own = "Traceback (most recent call last):\nValueError: 5\n";
  CHECK(TellsOfLostPeer("", lost));
  CHECK(TellsOfLostPeer(path, "step 5\nwhat():  Connection closed by peer\n"));
  CHECK_FALSE(TellsOfLostPeer(path, own));
  CHECK_FALSE(TellsOfLostPeer(path, ""));
  // Long ago.
  std::string handled = lost;
  for (int step = 0; step < 20; ++step) handled += "step " + std::to_string(step) + "\n";
  CHECK_FALSE(TellsOfLostPeer(path, handled));
  CHECK_FALSE(EndsInLostConnection(handled));
  CHECK_FALSE(TellsOfLostPeer(path, "connection lost, again\n1\n2\n3\n4\n5\n"));
  std::ofstream(path.c_str()) << R"({"message": "ValueError: 5"})";
  CHECK_FALSE(TellsOfLostPeer(path, lost));
  std::ofstream(path.c_str()) << R"({"message": "RuntimeError: Broken pipe"})";
  CHECK(TellsOfLostPeer(path, own));
}

TEST_CASE("ending workers: one that has closed its sockets, where others have some") {
  Machine machine;
  machine.CloseSocketOf(101);
  CHECK(machine.Ending() == std::set<int>{1});
  machine.CloseSocketOf(100);
  CHECK(machine.Ending().empty());
}

TEST_CASE("ending workers: of one that has gone nothing is known") {
  Machine machine;
  std::filesystem::remove_all(machine.Folder(102));
  CHECK(machine.Ending().empty());
}

}  // namespace
}  // namespace ddprun::launcher
