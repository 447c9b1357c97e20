// What a run was made of and how it ended. It answers where a checkpoint came from, months later.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_RUN_RECORD_H_
#define DDPRUN_WORKER_RUNTIME_DDP_RUN_RECORD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddp/process_group.h"

namespace ddp {

// The record's name in the checkpoints' directory.
inline constexpr char kRunRecordName[] = "run.json";

struct DataFile {
  std::string path;
  int64_t bytes = 0;
  std::string xxh3;  // XXH3 of 64 bits over all of it, 16 lower-case hexadecimal digits
};

// Reads the whole file. For what is no regular file (a pipe, which gives its bytes once) the result
// has only the path. Errors name the file, the call and errno.
absl::StatusOr<DataFile> DescribeDataFile(const std::string& path);

// A record has kRunning from its start on. That stays if all ranks that see the file were killed at
// once.
enum class RunOutcome { kRunning, kOk, kStopped, kFailed };

// The values of a record. Unknown ones are empty.
struct RunRecord {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  RunOutcome outcome = RunOutcome::kRunning;
  std::string error;       // why it did not end normally; its URLs have no passwords
  std::string started_at;  // "2026-01-31T08:00:00Z"
  std::string ended_at;    // empty while it runs
  Pairs versions;          // ddprun, compiler, glibc, kernel, nvidia_driver, cuda, nccl; add yours
  std::string host;        // of rank 0, like the values below
  std::string cpu;
  int cpus = 0;        // that it may use
  std::string device;  // the GPU's name, or "cpu"
  std::string backend;
  std::string why;  // which device and backend, and why: ProcessGroup::description()
  int world_size = 1;
  int local_world_size = 1;
  int restart_count = 0;
  std::vector<DataFile> data;
  std::vector<std::string> arguments;  // of the command line, without secrets
  Pairs environment;                   // sorted, without secrets

  // Sets the end of the run: kOk for an ok `status`, kStopped if the launcher had asked the job to
  // stop, kFailed otherwise.
  void End(const absl::Status& status, bool was_asked_to_stop);
};

// Makes a record with all but `data` and the program's own versions. Not collective: rank 0 should
// call it, and each rank may. `arguments` are those of main. The record takes the environment
// variables that begin with NCCL_, OMP_, CUDA_ and DDPRUN_, and no others.
//
// Secrets are left out: the record has "set" instead of the value. That applies to names of a
// variable or an argument (--name=value, --name value, NAME=value) that contain TOKEN, KEY, SECRET,
// PASSW, AUTH or CREDENTIAL. Case does not matter, so --tokenizer and MONKEY match, too, on
// purpose. A URL loses its password.
RunRecord MakeRunRecord(ProcessGroup& group, const std::vector<std::string>& arguments);

// Lines of JSON, with a newline at the end. Bytes that are not UTF-8 and control characters are
// escaped.
std::string ToJson(const RunRecord& record);

// The file kRunRecordName in a directory that exists. One call at a time. Other processes may write
// the file as well. So a call compares the file again when the new text is on disk, right before
// the rename. Only what another process writes between these two steps is lost. A lock would close
// that gap. But a process that is stopped would hold it, and some network file systems have no
// locks.
class RunRecordFile {
 public:
  explicit RunRecordFile(std::string directory)
      : directory_(std::move(directory)), path_(directory_ + "/" + kRunRecordName) {}

  // Replaces the file as a whole, and returns when it is on disk. The first call replaces any file.
  // Later calls replace only what this object wrote, and otherwise fail with FailedPrecondition. So
  // a rank that was cut off from its job does not overwrite the record of the job's next round.
  // Other errors name the file, the call and errno.
  absl::Status Write(const RunRecord& record);
  // Takes over the record that rank 0 begins, for other ranks, which may share the directory.
  // WriteEnd() then ends that record. `text` is ToJson() of that record. Rank 0 sends it to them
  // before it begins the file. From then on another rank can end it.
  void Adopt(std::string text) { begun_ = std::move(text); }
  // Writes how the run has ended into the record that was begun here or adopted. Any rank may,
  // since the rank that began it may have been killed. It does nothing if the file is another run's
  // or has an end. The first end stays, because later errors may be its consequences. Only Write()
  // replaces it.
  absl::Status WriteEnd(RunOutcome outcome, absl::string_view error);

 private:
  // On what is in the file.
  using Check = std::function<bool(const std::string& there)>;

  // What is in the file. Empty if there is no file.
  absl::StatusOr<std::string> Read() const;
  // Whether the file has `text` now. Null `may_replace`: it replaces any file.
  absl::StatusOr<bool> Replace(const std::string& text, const Check& may_replace);

  const std::string directory_;
  const std::string path_;
  std::string begun_;  // the record without its end, as written here or adopted; empty before
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_RUN_RECORD_H_
