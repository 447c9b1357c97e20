// The flag by which workers are asked to save and stop after their step (--preempt_signal), and the
// word in which rank 0 says how far it is.
#ifndef DDPRUN_LAUNCHER_PROCESS_STOP_FILE_H_
#define DDPRUN_LAUNCHER_PROCESS_STOP_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// A page of memory that the agent and its workers share, behind a file that both map: bytes 0 to 3
// say that a stop is asked for (the agent writes 1), bytes 4 to 7 that a rank has read that (it
// writes 1), bytes 8 to 15 how far rank 0 is, where it is on this node; native numbers, the rest is
// zero. All of it is there before the workers are, so that no file system is asked when the signal
// comes.
//
// Ask, was_read and progress may be called on any thread.
class StopFile {
 public:
  static constexpr size_t kBytes = 4096;

  // Makes the file in `folder`, where there is none. Touches files: on a file thread.
  static absl::StatusOr<std::unique_ptr<StopFile>> Make(const std::string& folder);
  // The file stays: whoever removes the folder removes it (FolderNote).
  ~StopFile();
  StopFile(const StopFile&) = delete;
  StopFile& operator=(const StopFile&) = delete;

  void Ask();
  bool was_read() const;
  // What rank 0's program said last (worker_runtime/progress_word.h); 0: nothing.
  uint64_t progress() const;
  // Whether workers still find it by its path. Touches files.
  bool Exists() const;
  // Workers do not find it by its path any more. Touches files.
  void Unlink() const;
  const std::string& path() const { return path_; }

 private:
  struct Page {
    alignas(4) uint32_t is_asked;
    alignas(4) uint32_t was_read;
    alignas(8) uint64_t progress;
  };
  StopFile(std::string path, Page* page) : path_(std::move(path)), page_(page) {}

  const std::string path_;
  Page* const page_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_STOP_FILE_H_
