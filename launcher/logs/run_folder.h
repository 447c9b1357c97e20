// Where a run's log and error files stand:
// <log_dir>/<run_id>_<random>/attempt_<restart_count>/<local_rank>/.
#ifndef DDPRUN_LAUNCHER_LOGS_RUN_FOLDER_H_
#define DDPRUN_LAUNCHER_LOGS_RUN_FOLDER_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

class RunFolder {
 public:
  struct Options {
    std::string log_dir;  // empty: a folder under temp_dir when one is needed; "/dev/null": none
    std::string run_id;   // made harmless as part of a file name
    std::string
        node{};  // likewise, behind it in log_dir: where several nodes may share that; or ""
    std::string temp_dir = "/tmp";
    std::string last_dir = "/tmp";  // where temp_dir cannot be used
    // Tried before temp_dir while it can be written and has room; "": none.
    std::string memory_dir{};
    // For MemoryFolder, in place of memory_dir.
    std::string shared_memory_dir = "/dev/shm";
    // Told of each folder made below those four.
    std::function<void(const std::string&)> on_temporary{};
  };

  // With a log_dir its folder of this run is made here, so that one that cannot be written to is
  // known before the job starts.
  static absl::StatusOr<RunFolder> Create(Options options);

  // From here on files belong to another attempt. A further one with the same count gets a number
  // of its own: attempt_<count>.<k>.
  void BeginAttempt(int restart_count);
  // Makes the folder of a worker in this attempt. "": no files are wanted. Below temp_dir it makes
  // the run's folder anew where that has gone: logind removes a user's part of /dev/shm when the
  // user logs out (RemoveIPC), others clean /tmp.
  absl::StatusOr<std::string> MakeWorkerFolder(int local_rank);
  // A folder of this user's alone for a file that is mapped and ends with the job, in
  // shared_memory_dir. Nowhere else: TMPDIR and --log_dir may be on a network file system, whose
  // pages can stall or kill whoever touches them.
  absl::StatusOr<std::string> MemoryFolder();
  // Removes what was made as temporary as far as no log is in it. Error files go where no other
  // file is: the report has what stood in them, and memory is not for keeping.
  void RemoveTemporaries();
  // Removes the temporary folders that runs of this user have left whose agent and guardian were
  // killed, as far as no log is in them. Looks in shared_memory_dir and beside this run's own.
  void RemoveAbandonedTemporaries() const;

  // Where the attempt's workers have their folders; exists once one of them was made.
  std::string attempt_path() const { return path_ + "/" + attempt_; }
  const std::string& path() const { return path_; }  // empty while there is none

 private:
  explicit RunFolder(Options options) : options_(std::move(options)) {}
  absl::Status MakeRunFolder();
  absl::StatusOr<std::string> MakeTemporary();
  absl::StatusOr<std::string> MakeTemporaryIn(const std::string& parent);
  absl::StatusOr<std::string> TryMakeWorkerFolder(int local_rank);
  bool is_temporary() const { return options_.log_dir.empty(); }

  Options options_;
  std::string path_;
  std::string beside_;  // the memory folder where path_ is none; "": not made
  std::string attempt_;
  std::map<int, int> attempts_seen_;      // by restart count
  std::vector<std::string> temporaries_;  // run folders that we made
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_RUN_FOLDER_H_
