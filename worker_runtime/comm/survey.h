// Asking the store what each of many ranks has written.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_SURVEY_H_
#define DDPRUN_WORKER_RUNTIME_COMM_SURVEY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp/store.h"
#include "worker_runtime/comm/op.h"

namespace ddp::internal {

// How long one rank may ask, and how long the others, who began to wait with it, await what it
// found out. With what comes before and after it - claiming the survey, the record's dump, the
// abort - all are out 5 s after a failure.
inline constexpr std::chrono::milliseconds kSurveyTime(1900);
inline constexpr std::chrono::milliseconds kVerdictPatience(2200);

// Ranks by number, of the first `asked` of `world_size`.
struct Survey {
  std::vector<int> missing;
  int asked = 0;
  int world_size = 0;

  bool is_whole() const { return asked == world_size; }
};

// " (of the 512 ranks that could be asked, of 10000)"; empty when the survey is whole.
std::string NameExtent(const Survey& survey);

// What ranks 0, 1, ... wrote under `key_of` the rank; nothing where there is no such key. Ends
// early, with fewer values than `world_size`, at `deadline` or when the store fails. Keys are asked
// for in pages, halves of a page where some are not there: 10,000 ranks of which eight are missing
// take some 150 questions, which is tens of milliseconds.
std::vector<std::optional<std::string>> AskRanks(Store& store, int world_size,
                                                 const std::function<std::string(int)>& key_of,
                                                 Clock::time_point deadline);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_SURVEY_H_
