// What the rows have in common: the folder, the machine, the time.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CHECK_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CHECK_H_

#include <map>
#include <string>
#include <vector>

#include "tools/gpu_check_program/child.h"
#include "tools/gpu_check_program/report.h"

namespace ddprun::gpu_check {

struct Check {
  std::string folder;           // that tools/gpu_check made
  std::string scratch;          // empty at first, removed at the end
  Clock::time_point deadline;   // of the row, set before each
  size_t max_bytes = 1u << 30;  // of an all-reduce
  std::string device = "cuda";  // of the trainer
  std::map<std::string, std::string> env;
  // Found by the row `machine`.
  std::map<std::string, std::string> machine;
  int gpus = 0;
  std::string nccl_lack;            // empty: there is one
  std::string trainer_lack;         // why it cannot run on the GPU
  std::string python, python_lack;  // with PyTorch and CUDA; or why there is none

  std::string Program(const std::string& name) const { return folder + "/bin/" + name; }
  std::string Scratch(const std::string& name) const { return scratch + "/" + name; }
  // Runs until the row's deadline.
  Outcome Run(std::vector<std::string> argv, std::map<std::string, std::string> more = {}) const;
  // The same under ddprun. `is_shared`: all ranks on the first GPU, each with a host id of its own.
  Outcome RunRanks(int ranks, bool is_shared, std::vector<std::string> argv,
                   std::vector<std::string> options = {}) const;
};

// Failed, with what the program said.
Result FailedRun(const std::string& what, const Outcome& outcome);

struct RowKind {
  std::string name;
  int limit_s;
  Result (*run)(Check& check);
};

// In the order in which they run.
const std::vector<RowKind>& MachineRows();
const std::vector<RowKind>& TrainerRows();
const std::vector<RowKind>& CollectiveRows();

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_CHECK_H_
