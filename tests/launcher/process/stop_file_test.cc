#include "launcher/process/stop_file.h"

#include <sys/stat.h>

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>

#include "launcher/process/folder_note.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

using testing::ReadFile;
using testing::TempDir;

std::string Words(uint32_t first, uint32_t second) {
  std::string bytes(StopFile::kBytes, '\0');
  std::memcpy(bytes.data(), &first, sizeof(first));
  std::memcpy(bytes.data() + 4, &second, sizeof(second));
  return bytes;
}

TEST_CASE("stop file: a page of zeros, in which the request and its reading have their words") {
  const TempDir temp;
  const auto made = StopFile::Make(temp.path());
  REQUIRE(made.ok());
  StopFile& file = **made;
  CHECK(ReadFile(file.path()) == Words(0, 0));
  struct stat about {};
  REQUIRE(stat(file.path().c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  CHECK(about.st_blocks * 512 >= 4096);  // room that a full disk cannot take

  file.Ask();
  CHECK(ReadFile(file.path()) == Words(1, 0));
  CHECK_FALSE(file.was_read());
  std::fstream worker(file.path(), std::ios::in | std::ios::out | std::ios::binary);
  worker.write(Words(1, 1).data(), 8);
  worker.close();
  CHECK(file.was_read());
}

TEST_CASE("stop file: what rank 0 says of its progress is read from its word") {
  const TempDir temp;
  const auto made = StopFile::Make(temp.path());
  REQUIRE(made.ok());
  CHECK((*made)->progress() == 0);
  const uint64_t word = 0x0000000700000003;
  std::fstream worker((*made)->path(), std::ios::in | std::ios::out | std::ios::binary);
  worker.seekp(8);
  worker.write(reinterpret_cast<const char*>(&word), sizeof(word));
  worker.close();
  CHECK((*made)->progress() == word);
  CHECK_FALSE((*made)->was_read());
}

TEST_CASE("stop file: another one has room once workers do not find the first any more") {
  const TempDir temp;
  const auto first = StopFile::Make(temp.path());
  REQUIRE(first.ok());
  (*first)->Ask();
  (*first)->Unlink();
  CHECK_FALSE((*first)->Exists());
  const auto second = StopFile::Make(temp.path());
  REQUIRE(second.ok());
  CHECK((*second)->Exists());
  CHECK(ReadFile((*second)->path()) == Words(0, 0));
}

TEST_CASE("stop file: one that is there already, or has no place, is an error that names it") {
  const TempDir temp;
  const auto first = StopFile::Make(temp.path());
  REQUIRE(first.ok());
  const auto second = StopFile::Make(temp.path());
  CHECK(std::string(second.status().message()).find("create " + (*first)->path()) == 0);
  CHECK_FALSE(StopFile::Make(temp.File("nowhere")).ok());
}

TEST_CASE("stop file: it goes with the folder, as the guardian removes it") {
  const TempDir temp;
  const std::string folder = temp.File("run");
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const auto made = StopFile::Make(folder);
  REQUIRE(made.ok());
  CHECK((*made)->Exists());
  FolderNote note;
  note.Write(folder);
  note.RemoveEmptyFolders();
  CHECK_FALSE((*made)->Exists());
  CHECK_FALSE(std::filesystem::exists(folder));
  (*made)->Ask();  // the page stays
}

}  // namespace
}  // namespace ddprun::launcher
