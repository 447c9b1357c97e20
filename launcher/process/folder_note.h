// What of the agent's own is to go with it, however it ends, and what it tells its guardian of: the
// folders made for the workers' error files and for the stop file, and a file with a secret.
#ifndef DDPRUN_LAUNCHER_PROCESS_FOLDER_NOTE_H_
#define DDPRUN_LAUNCHER_PROCESS_FOLDER_NOTE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::launcher {

// What in the folder is ddprun's own, and goes with it: the stop file (stop_file.h), and what has a
// name that begins like this, the workers' servers (DDPRUN_WORKER_SERVER).
inline constexpr char kStopFileName[] = "stop_request";
inline constexpr char kServerSocketStem[] = "torch_";
// How the names of the files in a worker's folder begin that say why it failed (last_words.h).
inline constexpr char kErrorFileStem[] = "error.json";

// Follows no link. -1 with errno set where it is no folder. Async-signal-safe.
int OpenFolder(int parent, const char* name);
// Removes what is an empty folder or a worker's server socket in the open `folder`, and before that
// in its folders, `levels` deep. Async-signal-safe.
void RemoveEmptyFoldersIn(int folder, int levels);

// The agent notes a folder when it has made it, which is after the guardian was forked; the
// guardian reads the note once the agent is gone. The last two folders count: others are made only
// where those before have gone.
//
// Lies in memory that both share. One writer: the agent's thread that makes the folder. A note
// counts from the store of `count_` on, so an agent that dies in the middle leaves those before.
class FolderNote {
 public:
  // A path that is too long, or names no directory, is not noted: that folder stays.
  void Write(const std::string& folder);

  // The guardian's. Async-signal-safe. Removes of each folder what is ddprun's own, the folders in
  // it, the folders in those, and itself, each as far as it is empty. Error files count as nothing
  // where no other file is in it: nobody is left to read them, and beside logs they stay. Follows
  // no link, and does nothing where another directory has taken the folder's place.
  void RemoveEmptyFolders() const;

  static constexpr size_t kMaxPath = 1024;  // its end included

 private:
  struct Entry {
    char path[kMaxPath];
    uint64_t device;
    uint64_t inode;
  };
  static void RemoveEmpty(const Entry& entry);

  static constexpr uint32_t kEntries = 3;  // those that count, and one to be written
  Entry entries_[kEntries]{};              // the n-th note, from 1 on, is at n % kEntries
  uint32_t count_ = 0;
};

// One file, noted once, by the agent's one writer as above.
class FileNote {
 public:
  // A path that is too long, or names no plain file, is not noted: that file stays.
  void Write(const std::string& file);
  // The guardian's. Async-signal-safe. Does nothing where another file has taken its place.
  void Remove() const;

 private:
  char path_[FolderNote::kMaxPath]{};
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint32_t is_noted_ = 0;  // the rest counts from its store on
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_FOLDER_NOTE_H_
