// What a run was, for programs.
#ifndef DDPRUN_EXAMPLES_TRAIN_SUMMARY_H_
#define DDPRUN_EXAMPLES_TRAIN_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddp/run_record.h"

namespace train {

struct EpochResult {
  int64_t epoch = 0;    // counted from 1
  double loss = 0;      // mean over the epoch's training images
  double accuracy = 0;  // share of the test images, 0 to 1
};

struct Summary {
  int world_size = 1;
  std::string backend;
  std::vector<EpochResult> epochs;  // of the whole run, also before a restart
  int64_t steps = 0;                // optimizer steps of the whole run
  int64_t start_step = 0;           // 0, or the step of the checkpoint that this run began from
  int restart_count = 0;
  double samples_per_second = 0;
  double step_ms = 0;
  double exposed_communication_share = 0;  // -1: not measured
  double cpu_utilisation = 0;              // mean over ranks of what each used of its share, 0 to 1
  double gpu_utilisation = -1;  // mean over ranks of when the GPU ran a kernel; below 0: unknown
  std::vector<int> slow_ranks;  // for which the others waited
  std::string checkpoint;       // empty without one
  std::string parameters_checksum;
  ddp::RunRecord record;
};

std::string ToJson(const Summary& summary);
// A file appears whole or not at all; what is no regular file (/dev/stdout) is written to.
absl::Status WriteSummary(const Summary& summary, const std::string& path);
// Whether WriteSummary can work, found out long before; leaves no file.
absl::Status CheckSummaryFile(const std::string& path);

// Results as text that a checkpoint can carry, and back, bit for bit.
std::string EncodeEpochs(const std::vector<EpochResult>& epochs);
std::vector<EpochResult> DecodeEpochs(const std::string& text);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_SUMMARY_H_
