// What this node knows of the failures of its own workers: how each ended, what it wrote to stderr
// last, what stands in its error file.
//
// The agent's thread drives it. A worker that failed first is described at once, because the other
// nodes wait for it; the rest when no worker of the round lives any more.
#ifndef DDPRUN_LAUNCHER_REPORT_NODE_FAILURES_H_
#define DDPRUN_LAUNCHER_REPORT_NODE_FAILURES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/agent/agent_core.h"
#include "launcher/agent/file_helper.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// How long dead workers' last lines are waited for: a grandchild may hold the pipe open.
inline constexpr Duration kTailTimeout = std::chrono::milliseconds(100);

class NodeFailures {
 public:
  using Say = std::function<void(const std::string& line)>;
  // The last `max_lines` lines of a worker's stderr, waited for `timeout` at most
  // (LogRouter::StderrTail).
  using Tail = std::function<std::string(int local_rank, size_t max_lines, Duration timeout)>;

  // `say` is told of an error file that cannot be used.
  NodeFailures(NodeId node, std::string host, Tail tail, Say say);

  // From here on workers are those of this round; those of the one before are forgotten.
  void BeginRound(const rendezvous::Assignment& assignment);
  // "": the worker has no error file.
  void SetErrorFile(int local_rank, const std::string& path);

  // A worker ended and not with success. One that was told to stop counts as failed only if it left
  // an error file that says so: its exit status is our doing.
  void Heard(const WorkerEnd& end, bool was_told_to_stop);
  // All there is to say of a worker's end: the answer to ReportFailure.
  rendezvous::FailureReport Describe(const WorkerEnd& end);
  // Describes what was only heard of.  REQUIRES for complete texts: no worker of the round lives.
  void Complete();

  // The failures described so far, in the order in which they were heard of.
  std::vector<rendezvous::FailureReport> failures() const;
  // How many more of this round left an error file after they were told to stop: there are too many
  // texts already for theirs to be read.
  uint64_t left_out() const { return left_out_; }
  // The error file of the first of them that has one, as whoever started this agent reads it: with
  // the exit code. "": none has one.
  absl::StatusOr<std::string> FirstErrorText();

 private:
  struct Ended {
    WorkerEnd end;
    bool was_told_to_stop = false;
    int64_t unix_time_ms = 0;
    bool is_settled = false;  // described, or found to be no failure
    std::optional<rendezvous::FailureReport> report;
  };
  Ended& Entry(const WorkerEnd& end);
  bool HasErrorFile(const WorkerEnd& end);
  void Fill(Ended& entry, Duration tail_timeout);
  absl::StatusOr<std::string> ReadInTime(const std::string& path);
  void ReadErrorFileInto(rendezvous::FailureReport& report);

  const NodeId node_;
  const std::string host_;
  const Tail tail_;
  const Say say_;
  rendezvous::Assignment assignment_;
  std::map<int, std::string> error_files_;  // by local rank
  std::vector<Ended> ended_;
  uint64_t left_out_ = 0;
  FileHelper files_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_NODE_FAILURES_H_
