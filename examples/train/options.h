// The trainer's command line.
#ifndef DDPRUN_EXAMPLES_TRAIN_OPTIONS_H_
#define DDPRUN_EXAMPLES_TRAIN_OPTIONS_H_

#include <cstdint>
#include <string>
#include <variant>

#include "ddp/distributed_data_parallel.h"
#include "ddp/process_group.h"

namespace train {

struct Options {
  std::string data;
  int epochs = 3;
  int batch_size = 64;  // per rank
  float learning_rate = 0.05f;
  int hidden = 128;
  double bucket_cap_mb = 25;
  ddp::GradientCompression compression = ddp::GradientCompression::kNone;
  int accumulate = 1;
  bool zero = false;
  std::string checkpoint_dir;  // empty: no checkpoints
  int64_t checkpoint_every = 0;
  bool resume = false;
  int64_t check_replicas_every = 0;  // steps; 0: as often as it costs little
  bool check_replicas_on_gpu = false;
  int64_t plant_drift = 0;      // after this step; 0: never
  int64_t plant_slow_rank = 0;  // milliseconds a step
  ddp::DeviceChoice device = ddp::DeviceChoice::kAuto;
  ddp::Backend backend = ddp::Backend::kAuto;
  int comm_timeout = 600;  // seconds; PyTorch's for NCCL
  uint64_t seed = 1;
  std::string summary_file;
  std::string step_log;
};

// The options, or the exit code with which to end: 0 after --help, 2 for a usage error, which has
// been told in one line on stderr.
std::variant<Options, int> ParseOptions(int argc, char** argv);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_OPTIONS_H_
