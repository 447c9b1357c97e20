// A job under test: a real ddprun over toy workers, each job with a mark of its own.
#ifndef DDPRUN_TESTS_E2E_JOB_H_
#define DDPRUN_TESTS_E2E_JOB_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// Owns a directory for the workers' files and knows which processes belong to the job.
class Job {
 public:
  // `ddprun`: which one, among the runfiles; kGatedDdprun for those of tests/gates/gates.h.
  explicit Job(const std::string& ddprun = "ddprun");
  // Checks that nothing of the job is left.
  ~Job();

  // Starts `ddprun <options> toy_worker <steps>`.
  std::unique_ptr<Subprocess> Run(std::vector<std::string> options, std::vector<std::string> steps,
                                  Subprocess::Options how = {});
  // Starts `ddprun <arguments>`.
  std::unique_ptr<Subprocess> RunRaw(std::vector<std::string> arguments,
                                     Subprocess::Options how = {});
  // Starts any program as part of the job.
  std::unique_ptr<Subprocess> RunProgram(std::vector<std::string> argv,
                                         Subprocess::Options how = {});

  // The options that make one of two nodes on this host, over a port reserved for this job.
  std::vector<std::string> NodeOptions(int workers, const std::string& nodes = "2",
                                       std::vector<std::string> more = {});
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }

  // A path in the job's directory, for touch: and until:.
  std::string File(const std::string& name) const { return dir_.File(name); }
  void Touch(const std::string& name) const;
  bool WaitForFile(const std::string& name) const;
  bool HasFile(const std::string& name) const;
  // An id that no other job on this machine has: a coordinator keeps its file under it, which one
  // of the same id and port takes up, on whatever simulated host.
  const std::string& id() const { return mark_; }
  // The pid of the worker of a rank; 0: there is none.
  int PidOfRank(int rank) const;
  // Of the worker and of what it has started.
  std::vector<int> PidsOfRank(int rank) const;
  bool HasWorker(int rank) const { return PidOfRank(rank) != 0; }
  // Pids of everything that carries this job's variable: agents and workers and their children.
  std::vector<int> Processes() const;
  // Whether, within `patience`, nothing of the job is left.
  bool IsGone(std::chrono::milliseconds patience = std::chrono::seconds(10)) const;

 private:
  const std::string ddprun_;
  TempDir dir_;
  std::string mark_;
  int port_;
};

// Requires that `node` says in time that it waits for so many nodes more.
void AwaitMissingNodes(Subprocess& node, int count = 1);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_JOB_H_
