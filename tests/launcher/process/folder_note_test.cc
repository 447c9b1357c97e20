#include "launcher/process/folder_note.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;

TEST_CASE("folder note: a fork that is older than the note removes the empty folders") {
  const testing::TempDir dir;
  void* memory =
      mmap(nullptr, sizeof(FolderNote), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  FolderNote* const note = new (memory) FolderNote();
  int go[2];
  REQUIRE(pipe(go) == 0);
  const pid_t guardian = fork();
  if (guardian == 0) {
    close(go[1]);
    char byte;
    if (read(go[0], &byte, 1) == 0) note->RemoveEmptyFolders();
    _exit(0);
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    for (int rank = 0; rank < 300; ++rank) {  // more than one read of the directory gives
      fs::create_directories(dir.path() / "run" / ("attempt_" + std::to_string(attempt)) /
                             std::to_string(rank));
    }
  }
  for (const char* name : {"earlier", "beside"}) fs::create_directories(dir.path() / name);
  for (const char* name : {"earlier", "beside", "run"}) note->Write(dir.File(name));
  close(go[1]);
  int status = 0;
  REQUIRE(waitpid(guardian, &status, 0) == guardian);
  close(go[0]);
  munmap(memory, sizeof(FolderNote));
  CHECK(status == 0);
  CHECK_FALSE(fs::exists(dir.path() / "run"));
  CHECK_FALSE(fs::exists(dir.path() / "beside"));
  CHECK(fs::exists(dir.path() / "earlier"));
}

TEST_CASE("folder note: a folder with a log stays, with its error file and its parents only") {
  const testing::TempDir dir;
  const fs::path run = dir.path() / "run";
  for (const char* rank : {"0", "1"}) fs::create_directories(run / "attempt_0" / rank);
  fs::create_directories(run / "attempt_1" / "0");
  const fs::path error_file = run / "attempt_0" / "1" / "error.json";
  std::ofstream(error_file.string()) << "{}";
  fs::path other;
  SUBCASE("beside it") { other = run / "attempt_0" / "1" / "stderr.log"; }
  SUBCASE("of its attempt") { other = run / "attempt_0" / "filtered_stdout.log"; }
  SUBCASE("of the run") { other = run / "notes"; }
  SUBCASE("in a folder of the program's") {
    other = run / "attempt_0" / "1" / "cache" / "error.json";
    fs::create_directories(other.parent_path());
  }
  SUBCASE("with a name of ours, in another place") { other = run / "error.json"; }
  SUBCASE("with a name that begins like one of ours") { other = run / "stop_request.old"; }
  std::ofstream(other.string()) << "x";
  FolderNote note;
  note.Write(run.string());
  note.RemoveEmptyFolders();
  CHECK(fs::exists(error_file));
  CHECK(fs::exists(other));
  CHECK_FALSE(fs::exists(run / "attempt_0" / "0"));
  CHECK_FALSE(fs::exists(run / "attempt_1"));
}

TEST_CASE("folder note: error files go with a folder in which no other file is") {
  const testing::TempDir dir;
  const fs::path run = dir.path() / "run";
  for (int rank = 0; rank < 300; ++rank) {  // more than one read of the directory gives
    const fs::path worker = run / "attempt_0" / std::to_string(rank);
    fs::create_directories(worker);
    std::ofstream(worker / "error.json") << "{}";
    std::ofstream(worker / "error.json.7.new") << "{";
  }
  std::ofstream(run / kStopFileName) << "x";
  REQUIRE(mknod((run / "torch_1_2_3").c_str(), S_IFSOCK | 0600, 0) == 0);
  FolderNote note;
  note.Write(run.string());
  note.RemoveEmptyFolders();
  CHECK_FALSE(fs::exists(run));
}

TEST_CASE("folder note: an error file that is a link or a folder is none of ours") {
  const testing::TempDir dir;
  const fs::path run = dir.path() / "run";
  const fs::path worker = run / "attempt_0" / "0";
  fs::create_directories(worker);
  std::ofstream(dir.File("target")) << "x";
  SUBCASE("a link") { fs::create_symlink(dir.path() / "target", worker / "error.json"); }
  SUBCASE("a folder") { fs::create_directories(worker / "error.json"); }
  FolderNote note;
  note.Write(run.string());
  note.RemoveEmptyFolders();
  CHECK(fs::exists(worker / "error.json"));
  CHECK(fs::exists(dir.path() / "target"));
}

TEST_CASE("folder note: sockets of workers' servers go with the folder, and nothing else does") {
  const testing::TempDir dir;
  const fs::path run = dir.path() / "run";
  fs::create_directories(run);
  for (int i = 0; i < 300; ++i) {  // more than one read of the directory gives
    const fs::path path = run / ("torch_1_2_" + std::to_string(i));
    REQUIRE(mknod(path.c_str(), S_IFSOCK | 0600, 0) == 0);
  }
  FolderNote note;
  note.Write(run.string());
  SUBCASE("alone") {
    note.RemoveEmptyFolders();
    CHECK_FALSE(fs::exists(run));
  }
  SUBCASE("beside others") {
    REQUIRE(mknod((run / "other").c_str(), S_IFSOCK | 0600, 0) == 0);
    std::ofstream(run / "torch_log") << "x";
    note.RemoveEmptyFolders();
    CHECK_FALSE(fs::exists(run / "torch_1_2_7"));
    CHECK(fs::exists(run / "other"));
    CHECK(fs::exists(run / "torch_log"));
  }
}

TEST_CASE("folder note: links are not followed, and what lies deeper than ours stays") {
  const testing::TempDir dir;
  const fs::path run = dir.path() / "run";
  fs::create_directories(run / "attempt_0" / "0");
  fs::create_directories(dir.path() / "others" / "inner");
  fs::create_directory_symlink(dir.path() / "others", run / "attempt_1");
  fs::create_directory_symlink(dir.path() / "others", run / "attempt_0" / "1");
  fs::create_directories(run / "attempt_2" / "0" / "cache");
  FolderNote note;
  note.Write(run.string());
  note.RemoveEmptyFolders();
  CHECK(fs::exists(dir.path() / "others" / "inner"));
  CHECK(fs::is_symlink(run / "attempt_1"));
  CHECK(fs::is_symlink(run / "attempt_0" / "1"));
  CHECK_FALSE(fs::exists(run / "attempt_0" / "0"));
  CHECK(fs::exists(run / "attempt_2" / "0" / "cache"));
}

TEST_CASE("folder note: what has taken the folder's place is left alone") {
  const testing::TempDir dir;
  const fs::path run = dir.path() / "run";
  fs::create_directories(run);
  FolderNote note;
  note.Write(run.string());
  fs::rename(run, dir.path() / "kept");  // keeps its inode from being used again
  fs::create_directories(run / "attempt_0");
  note.RemoveEmptyFolders();
  CHECK(fs::exists(run / "attempt_0"));

  fs::remove_all(run);
  fs::create_directory_symlink(dir.path() / "kept", run);
  fs::create_directories(dir.path() / "kept" / "attempt_0");
  note.RemoveEmptyFolders();
  CHECK(fs::exists(dir.path() / "kept" / "attempt_0"));
}

TEST_CASE("folder note: without a folder, and with a path that is too long, nothing is done") {
  const testing::TempDir dir;
  FolderNote note;
  note.RemoveEmptyFolders();
  note.Write("");
  note.Write(dir.File("none"));
  fs::path deep = dir.path();
  while (deep.string().size() < FolderNote::kMaxPath) deep /= std::string(100, 'x');
  fs::create_directories(deep);
  note.Write(deep.string());
  note.RemoveEmptyFolders();
  CHECK(fs::exists(deep));
}

TEST_CASE("file note: the file that was noted goes, and no other one that has its name since") {
  const testing::TempDir dir;
  const std::string file = dir.File("secret");
  const auto note_it = [&] {
    std::ofstream(file) << "hush";
    FileNote note;
    note.Write(file);
    return note;
  };
  const FileNote note = note_it();
  note.Remove();
  CHECK_FALSE(fs::exists(file));
  note.Remove();

  const FileNote old = note_it();
  fs::rename(file, dir.File("moved"));  // so that its inode is not given away again
  std::ofstream(file) << "another";
  old.Remove();
  CHECK(fs::exists(file));
  CHECK(fs::exists(dir.File("moved")));

  FileNote().Remove();
  FileNote of_folder;
  of_folder.Write(dir.path());
  of_folder.Remove();
  CHECK(fs::exists(dir.path()));
}

}  // namespace
}  // namespace ddprun::launcher
