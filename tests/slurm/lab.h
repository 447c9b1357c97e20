// What the tests under a real Slurm share. They run on its controller host (in_slurm.sh).
#ifndef DDPRUN_TESTS_SLURM_LAB_H_
#define DDPRUN_TESTS_SLURM_LAB_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::slurm {

using Words = std::vector<std::string>;

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

// `srun SLURM... ddprun OPTIONS... PROGRAM STEPS...`; PROGRAM is tests/e2e/toy_worker.
struct Step {
  Words slurm;
  Words options{};
  Words steps{};
  std::string ddprun = "ddprun";  // which one, among the runfiles
};

std::string Worker();
std::unique_ptr<testing::Subprocess> Start(const Step& step);
Result Run(const Step& step);
// Runs it to its end, which may have any code, and gives stdout.
std::string Output(Words argv);

Words SortedLines(const std::string& text);
// Until `text` was written `count` times to stdout.
bool WaitForCount(const testing::Subprocess& process, const std::string& text, size_t count);

// No process of ddprun or of its workers lives on any node, guardians included. Waits for it.
void CheckNoProcessIsLeft();
// Nor is a folder of theirs in /dev/shm, which is the cluster's own, or a control socket. Waits for
// it.
void CheckNothingIsLeft();
// For a job of which so many agents were killed at once with their guardians. Checks that no
// process of it lives, and that the others have removed their files. Then runs a job with these
// options of srun, whose agents remove the rest, and checks that nothing is left.
void CheckNextJobTidies(size_t killed, const Words& slurm = {});

// What sacct says of a job or step ("12.0") once it is over: "FAILED 7:0".
std::string Ending(const std::string& id);

// The same of all runs of a job or step that was requeued, once there are `runs`.
Words Endings(const std::string& id, size_t runs);

// The id of the job whose ddprun has written `err`: "12" of "ddprun: Slurm step 12.0: ...".
std::string JobOf(const std::string& err);

// "srun ddprun OPTIONS toy_worker STEPS", a line of a batch script.
std::string Srun(const std::string& options, const std::string& steps);

// A job from a batch script, in which `ddprun` is ours.
class Batch {
 public:
  Batch(const Words& options, const std::string& lines);
  const std::string& id() const { return id_; }
  bool IsPending() const;
  // Of a requeued job, which Slurm lets wait for 120 s; once its last run is over on all nodes.
  void StartAgain() const;
  std::string out() const;  // of the script and its steps, so far
  bool WaitForOut(const std::string& text, size_t count = 1) const;

 private:
  const testing::TempDir folder_;
  std::string id_;
};

// Cuts a node off as long as it lives: "3" for n3.
class CutNode {
 public:
  explicit CutNode(const std::string& node);
  ~CutNode();  // Slurm has it back then
  CutNode(const CutNode&) = delete;
  CutNode& operator=(const CutNode&) = delete;

 private:
  const std::string node_;
};

}  // namespace ddprun::slurm

#endif  // DDPRUN_TESTS_SLURM_LAB_H_
