// The programs that the rows start, one process per rank: each prints values and returns an exit
// code.
#ifndef DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RANK_COMMANDS_H_
#define DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RANK_COMMANDS_H_

#include <string>
#include <vector>

namespace ddprun::gpu_check {

using Arguments = std::vector<std::string>;

// What CUDA, NCCL and cuBLAS there are; ends with kExitNoGpu where CUDA shows no GPU.
int Machine(const Arguments& none);
// Sums and averages of every type are right on every rank.
int Sums(const Arguments& none);
// MAX_BYTES plain|graph: the library's all-reduce beside a bare loop.
int AllReduce(const Arguments& arguments);
// LAYER_BYTES: how much of the communication backward hides.
int Overlap(const Arguments& arguments);
// FILE: the last rank kills itself inside an all-reduce, having written the time to FILE; the
// others say how long they took to notice.
int Killed(const Arguments& arguments);
// A whole step captured and replayed gives the averages of new inputs.
int StepInGraph(const Arguments& none);
// DATA HIDDEN BATCH auto|nccl|cpu: the trainer's step with and without the library.
int StepTime(const Arguments& arguments);

}  // namespace ddprun::gpu_check

#endif  // DDPRUN_TOOLS_GPU_CHECK_PROGRAM_RANK_COMMANDS_H_
