// The note of a rank that left: its file, and real ranks that write it.
#include "worker_runtime/comm/left_peer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ddp/process_group.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/json.h"
#include "tests/support/pidfds.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temp_dir.h"

namespace ddp::internal {
namespace {

using ddprun::testing::Json;
using ddprun::testing::ParseJson;
using ddprun::testing::RankProcesses;
using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using ddprun::testing::WriteFile;

absl::Status Gone(const std::string& why, int rank) {
  return WithLeftPeer(absl::UnavailableError(why), rank);
}

// What an error file says; the rank is -1 where there is no such file.
struct Note {
  int left_peer = -1;
  std::string message;
  int64_t unix_time_s = 0;
};

Note NoteIn(const std::string& path) {
  const std::string text = ReadFile(path);
  CAPTURE(text);
  if (!std::filesystem::exists(path)) return {};
  const auto json = ParseJson(text);
  REQUIRE(json.has_value());
  return {json->get<int>("message.extraInfo.left_peer"), json->get<std::string>("message.message"),
          json->get<int64_t>("message.extraInfo.timestamp")};
}

size_t FilesIn(const TempDir& dir) {
  const std::filesystem::directory_iterator files(dir.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST_CASE("left peer: the first peer that left is written, and its mark is taken off") {
  const TempDir dir;
  const std::string path = dir.File("error.json");
  LeftPeerNote note(path, 0);
  const time_t before = time(nullptr);
  CHECK(note.Told(absl::OkStatus()) == absl::OkStatus());
  CHECK(note.Told(absl::DeadlineExceededError("rank 2 did not arrive")) ==
        absl::DeadlineExceededError("rank 2 did not arrive"));
  CHECK(FilesIn(dir) == 0);
  CHECK(note.Told(Gone("barrier #2 failed: rank 1 (pid 7) died", 1)) ==
        absl::UnavailableError("barrier #2 failed: rank 1 (pid 7) died"));
  CHECK(note.Told(Gone("rank 2 died", 2)) == absl::UnavailableError("rank 2 died"));
  CHECK(FilesIn(dir) == 2);
  const Note written = NoteIn(path);
  CHECK(written.left_peer == 1);
  CHECK(written.message == "rank 1 left the job: barrier #2 failed: rank 1 (pid 7) died");
  CHECK(written.unix_time_s >= before);
  CHECK(written.unix_time_s <= time(nullptr));
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 07777) == 0600);
}

TEST_CASE("left peer: the note outlives @record, which writes the error file anew") {
  const TempDir dir;
  const std::string path = dir.File("error.json");
  (void)LeftPeerNote(path, 0).Told(Gone("rank 1 died", 1));
  std::ofstream(path.c_str()) << R"({"message": "RuntimeError: rank 1 died"})";
  const Note beside = NoteIn(path + ".left_peer");
  CHECK(beside.left_peer == 1);
  CHECK(beside.message == "rank 1 left the job: rank 1 died");
}

TEST_CASE("left peer: whoever reads a note knows the rank that it names") {
  const TempDir dir;
  const std::string path = dir.File("error.json");
  (void)LeftPeerNote(path, 0).Told(Gone(R"(it said {"left_peer": 7})", 12));
  CHECK(LeftPeerOfNote(ReadFile(path)) == 12);
  CHECK_FALSE(LeftPeerOfNote(R"({"message": "ValueError: {\"left_peer\": 7}"})"));
  CHECK_FALSE(LeftPeerOfNote(R"({"left_peer": )"));
  CHECK_FALSE(LeftPeerOfNote(R"({"left_peer": "7"})"));
  CHECK_FALSE(LeftPeerOfNote(""));
}

TEST_CASE("left peer: what a rank caused itself is not written") {
  const TempDir dir;
  LeftPeerNote note(dir.File("error.json"), 1);
  CHECK(note.Told(Gone("aborted by rank 1: no", 1)) ==
        absl::UnavailableError("aborted by rank 1: no"));
  CHECK(FilesIn(dir) == 0);
  CHECK(note.Told(Gone("rank 0 died", 0)).ok() == false);
  CHECK(NoteIn(dir.File("error.json")).left_peer == 0);
}

TEST_CASE("left peer: a file that is there stays, and where none can be made none is") {
  const TempDir dir;
  const std::string path = WriteFile(dir.File("error.json"), "mine");
  CHECK_FALSE(LeftPeerNote(path, 0).Told(Gone("rank 1 died", 1)).ok());
  CHECK(ReadFile(path) == "mine");
  std::filesystem::create_symlink(dir.File("elsewhere"), dir.File("link"));
  CHECK_FALSE(LeftPeerNote(dir.File("link"), 0).Told(Gone("rank 1 died", 1)).ok());
  CHECK_FALSE(std::filesystem::exists(dir.File("elsewhere")));
  for (const std::string& nowhere :
       {std::string(), dir.File("no/error.json"), path + "/error.json", std::string("/dev/null")}) {
    CAPTURE(nowhere);
    CHECK(LeftPeerNote(nowhere, 0).Told(Gone("rank 1 died", 1)) ==
          absl::UnavailableError("rank 1 died"));
  }
  CHECK(FilesIn(dir) == 2);
}

std::atomic<int> signals_handled{0};

// A child that ends with 7 when `let_go` is closed.
pid_t ForkPeer(ddprun::UniqueFd* let_go) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  ddprun::UniqueFd held(ends[0]);
  let_go->Reset(ends[1]);
  const pid_t peer = fork();
  REQUIRE(peer >= 0);
  if (peer != 0) return peer;
  let_go->Reset();
  char byte;
  _exit(read(held.get(), &byte, 1) == 0 ? 7 : 8);
}

TEST_CASE("left peer: who leaves a peer behind does not end before that peer") {
  const TempDir dir;
  ddprun::UniqueFd let_go;
  const pid_t peer = ForkPeer(&let_go);
  struct sigaction act {};
  act.sa_handler = [](int) { ++signals_handled; };
  REQUIRE(sigaction(SIGUSR1, &act, nullptr) == 0);
  LeftPeerNote note(dir.File("error.json"), 0, {},
                    [peer](int rank) { return rank == 1 ? peer : 0; });
  // Told() is seen to wait, and is interrupted at it; then the peer may end.
  std::atomic<bool> has_returned{false};
  bool was_awaited = false;
  std::thread witness([&, teller = pthread_self()] {
    while (!has_returned && ddprun::testing::Pidfds(getpid(), peer) == 0) std::this_thread::yield();
    for (int sent = 1; sent <= 100 && !has_returned; ++sent) {
      pthread_kill(teller, SIGUSR1);
      while (signals_handled < sent) std::this_thread::yield();
    }
    was_awaited = !has_returned;
    let_go.Reset();
  });
  CHECK(note.Told(Gone("rank 1 has left", 1)) == absl::UnavailableError("rank 1 has left"));
  has_returned = true;
  witness.join();
  CHECK(was_awaited);
  int status = 0;
  CHECK(waitpid(peer, &status, 0) == peer);
  CHECK(WEXITSTATUS(status) == 7);
  // Ranks that are threads of one process, and one that is gone: there is nobody to wait for.
  for (const pid_t nobody : {getpid(), peer, 0, -1}) {
    CHECK(LeftPeerNote(dir.File("other.json"), 0, {}, [nobody](int) {
            return nobody;
          }).Told(Gone("gone", 1)) == absl::UnavailableError("gone"));
  }
}

TEST_CASE("left peer: whatever the reason holds, the file is JSON and small") {
  const TempDir dir;
  const std::string path = dir.File("error.json");
  std::string hostile = "\"quoted\" \\ back\nline\x1b[31m \xff\xc3\xa9 ";
  hostile.push_back('\0');
  CHECK_FALSE(LeftPeerNote(path, 0)
                  .Told(WithLeftPeer(absl::AbortedError(hostile + std::string(1 << 20, '"')), 3))
                  .ok());
  CHECK(ReadFile(path).size() < 5000);
  const Note written = NoteIn(path);
  CHECK(written.left_peer == 3);
  const std::string expected =
      "rank 3 ended the group: \"quoted\" \\ back\\nline\\x1b[31m \\xff\xc3\xa9 \\x00\"\"\"";
  CHECK(written.message.substr(0, expected.size()) == expected);
}

// --- real ranks

constexpr int kRanks = 4;
constexpr int kLeaver = 1;

struct Layout {
  const char* name;
  Backend backend;
  int ranks_per_host;
};
constexpr Layout kLayouts[] = {
    {"shm", Backend::kAuto, 4}, {"tcp", Backend::kTcp, 4}, {"2 x 2", Backend::kAuto, 2}};

enum class Way {
  kExit,      // the process ends as it stands
  kReturn,    // main() returns, and the group is taken down on the way
  kUnderWay,  // the same within an operation
  kAbort,     // the group is told why
  kStayAway,  // no end at all
  kDisagree,  // a call that the others do not make
};

// What kLeaver does instead of the operation that the others are in.
int Leave(std::unique_ptr<ProcessGroup> group, Way way) {
  Communicator& communicator = group->communicator();
  switch (way) {
    case Way::kExit:
      _exit(3);
    case Way::kReturn:
      return 3;
    case Way::kUnderWay: {
      std::vector<float> data(1 << 20);
      (void)communicator.AllReduce(data.data(), data.size(), DType::kFloat32, ReduceOp::kSum);
      _exit(3);
    }
    case Way::kAbort:
      communicator.Abort("the loss is no number");
      return 3;
    case Way::kStayAway:
      RankProcesses::Say("away");
      pause();
      return 3;
    case Way::kDisagree:
      (void)communicator.Barrier()->Wait();
      return 3;
  }
  return 3;
}

int RunRank(const Layout& layout, Way way, int rank) {
  auto group = ProcessGroup::FromEnv({layout.backend, std::chrono::minutes(10)});
  if (!group.ok()) {
    RankProcesses::Say(group.status().ToString());
    return 99;
  }
  Communicator& communicator = (*group)->communicator();
  absl::Status status = communicator.Barrier()->Wait();
  if (rank == kLeaver && status.ok()) return Leave(*std::move(group), way);
  // From here on, so that a slow machine does not end what is to succeed.
  if (way == Way::kStayAway) communicator.SetTimeout(std::chrono::seconds(2));
  std::vector<float> data(1 << 20);
  while (status.ok()) {
    status =
        communicator.AllReduce(data.data(), data.size(), DType::kFloat32, ReduceOp::kSum)->Wait();
  }
  // At once, as most programs do: what is to be written must have been.
  RankProcesses::Say(status.ToString());
  _exit(1);
}

void CheckNotes(Way way, int expected, const std::string& message) {
  for (const Layout& layout : kLayouts) {
    CAPTURE(std::string(layout.name));
    const TempDir dir;
    const auto file_of = [&](int rank) { return dir.File(std::to_string(rank)); };
    RankProcesses::Options options;
    options.world_size = kRanks;
    options.env_of_rank = [&](int rank) {
      return std::map<std::string, std::string>{
          {"TORCHELASTIC_ERROR_FILE", file_of(rank)},
          {"DDPRUN_HOST_ID", "host" + std::to_string(rank / layout.ranks_per_host)}};
    };
    RankProcesses ranks(options, [&](int rank) { return RunRank(layout, way, rank); });
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kLeaver) continue;
      CAPTURE(rank);
      const std::string said = ranks.Hear(rank);
      CAPTURE(said);
      CHECK(ranks.Await(rank) == 1);
      // The mark is for us alone.
      CHECK(said != Contains("["));
      const Note note = NoteIn(file_of(rank));
      CHECK(note.left_peer == expected);
      CHECK(note.message.substr(0, message.size()) == message);
      if (expected >= 0) CHECK(note.message == Contains("rank 1"));
    }
    if (way != Way::kStayAway) CHECK(ranks.Await(kLeaver) == 3);
    CHECK(NoteIn(file_of(kLeaver)).left_peer == -1);
  }
}

TEST_CASE("left peer: every rank that is left says whose process ended") {
  CheckNotes(Way::kExit, kLeaver, "rank 1 left the job: ");
}

TEST_CASE("left peer: every rank that is left says who took its group down") {
  CheckNotes(Way::kReturn, kLeaver, "rank 1 left the job: ");
}

TEST_CASE("left peer: every rank that is left says whose process ended within an operation") {
  CheckNotes(Way::kUnderWay, kLeaver, "rank 1 left the job: ");
}

TEST_CASE("left peer: every other rank says who aborted the group") {
  CheckNotes(Way::kAbort, kLeaver, "rank 1 ended the group: aborted by rank 1: ");
}

TEST_CASE("left peer: nobody says so of a rank that only stays away") {
  CheckNotes(Way::kStayAway, -1, "");
}

TEST_CASE("left peer: nobody says so of ranks that disagree") {
  CheckNotes(Way::kDisagree, -1, "");
}

}  // namespace
}  // namespace ddp::internal
