// What a run was made of and how it ended, for whoever asks months later where a checkpoint came
// from.
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

// Reads the whole file; of what is no regular file (a pipe, whose bytes come once) the path alone.
// Errors name the file, the call and errno.
absl::StatusOr<DataFile> DescribeDataFile(const std::string& path);

// kRunning is what a record says from its start on. It stays where all ranks that see the file were
// killed at once.
enum class RunOutcome { kRunning, kOk, kStopped, kFailed };

// A value; what is not known is empty.
struct RunRecord {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  RunOutcome outcome = RunOutcome::kRunning;
  std::string error;       // why it did not end by itself; its URLs have no passwords
  std::string started_at;  // "2026-01-31T08:00:00Z"
  std::string ended_at;    // empty while it runs
  Pairs versions;          // ddprun, compiler, glibc, kernel, nvidia_driver, cuda, nccl; add yours
  std::string host;        // of rank 0, like the next ones
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

  // From now on it ended like this: kOk for `status` ok, kStopped where the launcher had asked the
  // job to stop, kFailed otherwise.
  void End(const absl::Status& status, bool was_asked_to_stop);
};

// All but `data` and the program's own versions. Not collective: each rank may, rank 0 is meant to.
// `arguments` are main's. Of the environment the variables that begin with NCCL_, OMP_, CUDA_ and
// DDPRUN_ are taken, others never. Instead of the value there is "set" where a name, of a variable
// or of an argument (--name=value, --name value, NAME=value), holds TOKEN, KEY, SECRET, PASSW, AUTH
// or CREDENTIAL in any case: --tokenizer and MONKEY as well, on purpose. A URL loses its password.
RunRecord MakeRunRecord(ProcessGroup& group, const std::vector<std::string>& arguments);

// Lines of JSON, ending with a newline. Bytes that are not UTF-8 and control characters are
// escaped.
std::string ToJson(const RunRecord& record);

// The file kRunRecordName in a directory that exists. One call at a time. Other processes may write
// the file as well. It is compared again when the new text is on disk, right before the rename:
// only what is written between these two calls is lost. A lock would close that gap, but a process
// that is stopped would hold it, and some network file systems have none.
class RunRecordFile {
 public:
  explicit RunRecordFile(std::string directory)
      : directory_(std::move(directory)), path_(directory_ + "/" + kRunRecordName) {}

  // The file is replaced as a whole and is on disk then. The first call replaces whatever there is,
  // later ones only what this object wrote: a rank that was cut off from its job does not write
  // over the record of the job's next round; FailedPrecondition then. Other errors name the file,
  // the call and errno.
  absl::Status Write(const RunRecord& record);
  // For the other ranks, which may share the directory: WriteEnd() ends the record that rank 0
  // begins. `text` is ToJson() of that. Rank 0 tells it to them before it begins the file, so that
  // somebody can end it from then on.
  void Adopt(std::string text) { begun_ = std::move(text); }
  // Writes into the record that was begun here or adopted how the run has ended. Any rank may,
  // since the one that began it may have been killed. Does nothing if the file is another run's or
  // has an end: the first word stays, as later errors may be its consequences. Only Write()
  // replaces it.
  absl::Status WriteEnd(RunOutcome outcome, absl::string_view error);

 private:
  // Of what is in the file.
  using Check = std::function<bool(const std::string& there)>;

  // What is in the file; empty where there is none.
  absl::StatusOr<std::string> Read() const;
  // Whether `text` is there now. Null `may_replace`: whatever there was.
  absl::StatusOr<bool> Replace(const std::string& text, const Check& may_replace);

  const std::string directory_;
  const std::string path_;
  std::string begun_;  // the record without its end, as written here or adopted; empty before
};

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_RUN_RECORD_H_
